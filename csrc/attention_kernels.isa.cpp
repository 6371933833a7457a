#include "attention_kernels.h"

#include <cstring>

#include "attention_blocks.h"
#include "attention_rounded.h"
#include "vec16.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// ---- what a row sees ---------------------------------------------------------------------------------------------

// The tokens of a partition that a task reads, as positions: from a border of tiles to the end of the partition.
struct Stretch {
    int start, end;
};

Stretch stretch_of(const AttentionTask& a, int part) {
    const int border = part * kPartition, first = first_seen(a.first_position, a.window) / kTile * kTile;
    return {first > border ? first : border, border + kPartition};
}

// Tokens begin .. end, counted from the start of a stretch.
struct Span {
    int begin, end;
    bool empty() const { return begin >= end; }
};

OCTAVO_INLINE Span seen_by(const AttentionTask& a, int row, Stretch in) {
    const int position = a.first_position + row / a.group, first = first_seen(position, a.window);
    const int stop = position + 1 < in.end ? position + 1 : in.end;
    return {first > in.start ? first - in.start : 0, stop - in.start};
}

// ---- softmax of one row over the tokens that it sees --------------------------------------------------------------

// The largest score. Tokens before the window, and later ones of the last tile (other queries' or stale), become -inf.
float largest(float* s, Span seen) {
    const int n = seen.end, num_vectors = (n + 15) / 16;
    for (int i = 0; i < seen.begin; ++i) s[i] = -kInf;
    V16 top = set1(-kInf);
    for (int i = 0; i < num_vectors; ++i) {
        V16 x = load(s + i * 16);
        if (n - i * 16 < 16) {
            x = keep_n(x, n - i * 16, -kInf);
            store(s + i * 16, x);
        }
        top = max_(top, x);
    }
    return max_lanes(top);
}

// s becomes exp(s - m); returns their sum.
float weigh(float* s, int n, float m) {
    const int num_vectors = (n + 15) / 16;
    const V16 shift = set1(m);
    V16 sum = zero();
    for (int i = 0; i < num_vectors; ++i) {
        const V16 p = exp_nonpositive(sub(load(s + i * 16), shift));
        store(s + i * 16, p);
        sum = add(sum, p);
    }
    return sum_lanes(sum);
}

// ---- a tile of queries ------------------------------------------------------------------------------------------

// Adds a later partition's (acc, m, l) to an earlier one's. Rows of n floats, then m and l.
void fold(float* into, const float* part, int n) {
    float* m = into + n;
    float* l = into + n + 1;
    const float top = *m > part[n] ? *m : part[n];
    float both[16] = {*m - top, part[n] - top};
    store(both, exp_nonpositive(load(both)));
    const float a = both[0], b = both[1];
    const V16 va = set1(a), vb = set1(b);
    for (int d = 0; d < n; d += 16) store(into + d, fma(load(part + d), vb, mul(load(into + d), va)));
    *l = *l * a + part[n + 1] * b;
    *m = top;
}

void write_row(const float* state, int head_dim, int padded, float* out) {
    const V16 by = set1(state[padded + 1]);
    for (int d = 0; d < head_dim; d += 16) {
        const int n = head_dim - d < 16 ? head_dim - d : 16;
        store_n(out + d, div(load(state + d), by), n);
    }
}

struct Rows {
    int count, block;  // rows, and rows of a register block (the last may be smaller)
    int in_block(int first) const { return count - first < block ? count - first : block; }
};

OCTAVO_INLINE const float* query_of(const AttentionTask& a, int row) {
    const int query = row / a.group, head = row % a.group;
    const int64_t query_row = a.query_rows == nullptr ? query : a.query_rows[query];
    return a.q + query_row * a.row_stride + static_cast<int64_t>(head) * a.head_dim;
}

// [block][D][rows of the block]
template <class T>
void pack_queries(const AttentionTask& a, Rows rows, float* packed) {
    for (int first = 0; first < rows.count; first += rows.block) {
        const int n = rows.in_block(first);
        float* to = packed + static_cast<int64_t>(first) * a.head_dim;
        int r = 0;
        for (; r + 4 <= n; r += 4) {
            const float* from[4];
            for (int i = 0; i < 4; ++i) from[i] = query_of(a, first + r + i);
            for (int64_t d = 0; d < a.head_dim; d += 4) {
                transpose4(from[0] + d, from[1] + d, from[2] + d, from[3] + d, to + d * n + r, n);
            }
        }
        for (; r < n; ++r) {
            const float* from = query_of(a, first + r);
            for (int64_t d = 0; d < a.head_dim; ++d) to[d * n + r] = from[d];
        }
        Blocks<T>::prepare_queries(to, n, a.head_dim);
    }
}

// acc of all rows for the tokens begin..end of a stretch. Rows of one block that see fewer tokens than others
// join late or leave early: what lies outside a query's window or beyond its position is never read for it.
template <class T>
void values_step(const AttentionTask& a, Rows rows, Stretch in, const Blocks<T>& blocks, int begin, int end,
                 const float* p, float* acc, int64_t acc_stride) {
    const auto next_query = [&](int r) { return (r / a.group + 1) * a.group; };
    for (int first = 0; first < rows.count; first += rows.block) {
        const int last = first + rows.in_block(first);
        const bool all_begun = seen_by(a, last - 1, in).begin <= begin;
        int t = begin;
        for (int r = first; r < last && t < end;) {
            const Span seen = seen_by(a, r, in);
            if (seen.end <= t || seen.begin >= end) {
                r = next_query(r);
                continue;
            }
            if (t < seen.begin) t = seen.begin;
            int stop = seen.end < end ? seen.end : end, joined = all_begun ? last : next_query(r);
            for (; joined < last; joined = next_query(joined)) {
                const int joins = seen_by(a, joined, in).begin;
                if (joins <= t) continue;
                if (joins < stop) stop = joins;
                break;
            }
            blocks.add_values((joined < last ? joined : last) - r, p + static_cast<int64_t>(r) * kPartition, t, stop,
                              a.head_dim, acc + r * acc_stride, acc_stride);
            t = stop;
        }
    }
}

// Scores become weights; rows of `result` become (0, m, l). First all of one kind, then all of the next: within a row
// each waits for the one before, while the processor works on several rows at once.
template <class T>
void softmax(const AttentionTask& a, Rows rows, Stretch in, float* p, float* result) {
    const int64_t stride = partial_stride(a.head_dim), padded = padded_head_dim(a.head_dim);
    for (int r = 0; r < rows.count; ++r) {
        const Span seen = seen_by(a, r, in);
        if (!seen.empty()) result[r * stride + padded] = largest(p + static_cast<int64_t>(r) * kPartition, seen);
    }
    for (int r = 0; r < rows.count; ++r) {
        float* row = result + r * stride;
        const Span seen = seen_by(a, r, in);
        for (int64_t d = 0; d < padded; ++d) row[d] = 0.0f;
        if (seen.empty()) continue;
        float* weights = p + static_cast<int64_t>(r) * kPartition;
        row[padded + 1] = weigh(weights, seen.end, row[padded]);
        Blocks<T>::prepare_weights(weights, (seen.end + 15) / 16);
    }
}

template <class T>
OCTAVO_INLINE const T* key_tile(const AttentionTask& a, int index) {
    return static_cast<const T*>(a.keys) + a.tiles[index] * a.tile_stride;
}

// A first touch of tiles that are a partition away. They lie on pages of their own, and finding one takes as long as many
// reads: too long for what is asked for kStepTiles ahead.
template <class T>
OCTAVO_INLINE void find_pages(const AttentionTask& a, int first, int count, int all_tiles) {
    const int end = first + count < all_tiles ? first + count : all_tiles;
    for (int i = first; i < end; ++i) {
        const T* keys = key_tile<T>(a, i);
        prefetch(keys);
        prefetch(keys + a.value_offset);
    }
}

// One partition for all rows that see any of it: their rows of `result` become (acc, m, l).
template <class T>
void attend_partition(const AttentionTask& a, Rows rows, int part, const float* packed, float* p, float* buffer,
                      float* result) {
    const Stretch in = stretch_of(a, part);
    const int seen = seen_by(a, rows.count - 1, in).end;
    const int num_tiles = (seen + kTile - 1) / kTile;
    const int64_t stride = partial_stride(a.head_dim);
    const T* stream[2 * kTilesPerPartition + kStepTiles];  // as memory is read: keys, values, what comes next
    const T** keys = stream;
    const T** values = stream + num_tiles;
    const int all_tiles = (a.first_position + a.num_queries + kTile - 1) / kTile;
    for (int i = 0; i < num_tiles; ++i) {
        keys[i] = key_tile<T>(a, in.start / kTile + i);
        values[i] = keys[i] + a.value_offset;
    }
    const bool last = part + 1 == a.part_end;
    const int first_next = stretch_of(a, last ? a.part_begin : part + 1).start / kTile;
    for (int i = 0; i < kStepTiles; ++i) {
        const int next = first_next + i;
        values[num_tiles + i] =
            next >= all_tiles ? values[num_tiles - 1] : key_tile<T>(a, next) + (last ? a.next_head : 0);
    }
    Blocks<T> blocks(buffer, /*several=*/rows.count > rows.block);
    const auto step_tiles = [&](int t) { return num_tiles - t < kStepTiles ? num_tiles - t : kStepTiles; };
    for (int t = 0; t < num_tiles; t += kStepTiles) {
        blocks.take_keys(keys + t, step_tiles(t), a.head_dim);
        find_pages<T>(a, in.start / kTile + t + kTilesPerPartition, step_tiles(t), all_tiles);
        for (int r = 0; r < rows.count; r += rows.block) {
            blocks.add_scores(rows.in_block(r), packed + static_cast<int64_t>(r) * a.head_dim, a.head_dim, a.scale,
                              p + static_cast<int64_t>(r) * kPartition + t * kTile);
        }
    }
    softmax<T>(a, rows, in, p, result);
    for (int t = 0; t < num_tiles; t += kStepTiles) {
        blocks.take_values(values, t, step_tiles(t), a.head_dim);
        values_step(a, rows, in, blocks, t * kTile, (t + kStepTiles) * kTile, p, result, stride);
    }
}

// The results of a later partition go into those of the first one.
void fold_partition(const AttentionTask& a, int count, int part, float* into, const float* results) {
    const int64_t stride = partial_stride(a.head_dim);
    const Stretch in = stretch_of(a, part);
    for (int r = 0; r < count; ++r) {
        if (seen_by(a, r, in).empty()) continue;
        float* state = into + r * stride;
        const float* result = results + r * stride;
        if (first_seen(a.first_position + r / a.group, a.window) / kPartition == part) {
            std::memcpy(state, result, static_cast<size_t>(stride) * sizeof(float));
        } else {
            fold(state, result, padded_head_dim(a.head_dim));
        }
    }
}

float* out_row(const AttentionTask& a, int row) {
    return a.out + row / a.group * a.row_stride + static_cast<int64_t>(row % a.group) * a.head_dim;
}

template <class T>
void attend(const AttentionTask& a, float* scratch) {
    const int count = a.num_queries * a.group;
    const int blocks = (count + kMaxRows - 1) / kMaxRows;
    const Rows rows{count, (count + blocks - 1) / blocks};
    const int64_t stride = partial_stride(a.head_dim);
    const int padded = padded_head_dim(a.head_dim);
    float* packed = scratch;
    float* p = packed + static_cast<int64_t>(count) * a.head_dim;
    float* state = p + static_cast<int64_t>(count) * kPartition;
    float* next = state + count * stride;
    float* buffer = next + count * stride;
    pack_queries<T>(a, rows, packed);
    if (a.results != nullptr) {
        for (int part = a.part_begin; part < a.part_end; ++part) {
            attend_partition<T>(a, rows, part, packed, p, buffer, a.partials + a.results[part - a.part_begin] * stride);
        }
        return;
    }
    for (int part = a.part_begin; part < a.part_end; ++part) {
        const bool first = part == a.part_begin;
        attend_partition<T>(a, rows, part, packed, p, buffer, first ? state : next);
        if (!first) fold_partition(a, count, part, state, next);
    }
    for (int r = 0; r < count; ++r) write_row(state + r * stride, a.head_dim, padded, out_row(a, r));
}

void merge(const AttentionTask& a) {
    const int count = a.num_queries * a.group;
    const int64_t stride = partial_stride(a.head_dim);
    const int padded = padded_head_dim(a.head_dim);
    float* state = a.partials + a.results[0] * stride;
    for (int part = a.part_begin + 1; part < a.part_end; ++part) {
        fold_partition(a, count, part, state, a.partials + a.results[part - a.part_begin] * stride);
    }
    for (int r = 0; r < count; ++r) write_row(state + r * stride, a.head_dim, padded, out_row(a, r));
}

}  // namespace

const AttentionKernels attention_kernels = {attend<f16>, attend<float>, merge};

}  // namespace OCTAVO_ISA
}  // namespace octavo
