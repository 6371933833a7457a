#include "attention_kernels.h"

#include "attention_blocks.h"
#include "vec16.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// ---- softmax of one row over its first n tokens ------------------------------------------------------------------

// The largest score. Later tokens of the last tile (other queries' or stale) become -inf.
float largest(float* s, int n) {
    const int num_vectors = (n + 15) / 16;
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

// Tokens of the partition that starts at `start` which the row may see.
OCTAVO_INLINE int visible(const AttentionTask& a, int row, int start) {
    const int n = a.first_position + row / a.group + 1 - start;
    return n < 0 ? 0 : n > kPartition ? kPartition : n;
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
    }
}

// acc of all rows for the tokens begin..end of a partition. Rows of one block that see fewer
// tokens than others leave early: what lies beyond a query's position is never read for it.
template <class T>
void values_step(const AttentionTask& a, Rows rows, int start, const T* const* values, int begin, int end,
                 const float* p, float* acc, int64_t acc_stride) {
    for (int first = 0; first < rows.count; first += rows.block) {
        const int last = first + rows.in_block(first);
        int t = begin;
        for (int r = first; r < last && t < end; r = (r / a.group + 1) * a.group) {
            const int seen = visible(a, r, start);
            const int stop = seen < end ? seen : end;
            if (stop <= t) continue;
            values_of_rows(last - r, p + static_cast<int64_t>(r) * kPartition, values, t, stop, a.head_dim,
                           acc + r * acc_stride, acc_stride);
            t = stop;
        }
    }
}

// Scores become weights; rows of `result` become (0, m, l). First all of one kind, then all of the next: within a row
// each waits for the one before, while the processor works on several rows at once.
void softmax(const AttentionTask& a, Rows rows, int start, float* p, float* result) {
    const int64_t stride = partial_stride(a.head_dim), padded = padded_head_dim(a.head_dim);
    for (int r = 0; r < rows.count; ++r) {
        const int n = visible(a, r, start);
        if (n > 0) result[r * stride + padded] = largest(p + static_cast<int64_t>(r) * kPartition, n);
    }
    for (int r = 0; r < rows.count; ++r) {
        float* row = result + r * stride;
        const int n = visible(a, r, start);
        for (int64_t d = 0; d < padded; ++d) row[d] = 0.0f;
        if (n > 0) row[padded + 1] = weigh(p + static_cast<int64_t>(r) * kPartition, n, row[padded]);
    }
}

template <class T>
OCTAVO_INLINE const T* key_tile(const AttentionTask& a, int index) {
    return static_cast<const T*>(a.keys) + a.tiles[index] * a.tile_stride;
}

// One partition for all rows that reach it: rows of `result` become (acc, m, l).
template <class T>
void attend_partition(const AttentionTask& a, Rows rows, int part, const float* packed, float* p, float* result) {
    const int start = part * kPartition;
    const int seen = visible(a, rows.count - 1, start);
    const int num_tiles = (seen + kTile - 1) / kTile;
    const int64_t stride = partial_stride(a.head_dim);
    const T* stream[2 * kTilesPerPartition + kStepTiles];  // as memory is read: keys, values, what comes next
    const T** keys = stream;
    const T** values = stream + num_tiles;
    const int all_tiles = (a.first_position + a.num_queries + kTile - 1) / kTile;
    for (int i = 0; i < num_tiles; ++i) {
        keys[i] = key_tile<T>(a, part * kTilesPerPartition + i);
        values[i] = keys[i] + a.value_offset;
    }
    const bool last = part + 1 == a.part_end;
    for (int i = 0; i < kStepTiles; ++i) {
        const int next = (last ? a.part_begin : part + 1) * kTilesPerPartition + i;
        values[num_tiles + i] =
            next >= all_tiles ? values[num_tiles - 1] : key_tile<T>(a, next) + (last ? a.next_head : 0);
    }
    for (int t = 0; t < num_tiles; t += kStepTiles) {
        const int n = num_tiles - t < kStepTiles ? num_tiles - t : kStepTiles;
        for (int r = 0; r < rows.count; r += rows.block) {
            scores(rows.in_block(r), packed + static_cast<int64_t>(r) * a.head_dim, keys + t, n, a.head_dim, a.scale,
                   p + static_cast<int64_t>(r) * kPartition + t * kTile);
        }
    }
    softmax(a, rows, start, p, result);
    constexpr int kStep = kStepTiles * kTile;
    for (int t = 0; t < seen; t += kStep) {
        values_step(a, rows, start, values, t, t + kStep, p, result, stride);
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
    pack_queries(a, rows, packed);
    if (a.results != nullptr) {
        for (int part = a.part_begin; part < a.part_end; ++part) {
            attend_partition<T>(a, rows, part, packed, p, a.partials + a.results[part - a.part_begin] * stride);
        }
        return;
    }
    for (int part = a.part_begin; part < a.part_end; ++part) {
        attend_partition<T>(a, rows, part, packed, p, part == 0 ? state : next);
        for (int r = 0; part > 0 && r < count; ++r) {
            if (visible(a, r, part * kPartition) > 0) fold(state + r * stride, next + r * stride, padded);
        }
    }
    for (int r = 0; r < count; ++r) write_row(state + r * stride, a.head_dim, padded, out_row(a, r));
}

void merge(const AttentionTask& a) {
    const int count = a.num_queries * a.group;
    const int64_t stride = partial_stride(a.head_dim);
    const int padded = padded_head_dim(a.head_dim);
    float* state = a.partials + a.results[0] * stride;
    for (int part = 1; part < a.part_end; ++part) {
        const float* next = a.partials + a.results[part] * stride;
        for (int r = 0; r < count; ++r) {
            if (visible(a, r, part * kPartition) > 0) fold(state + r * stride, next + r * stride, padded);
        }
    }
    for (int r = 0; r < count; ++r) write_row(state + r * stride, a.head_dim, padded, out_row(a, r));
}

}  // namespace

const AttentionKernels attention_kernels = {attend<f16>, attend<float>, merge};

}  // namespace OCTAVO_ISA
}  // namespace octavo
