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

OCTAVO_INLINE Span seen_by(const AttentionTask& a, int query, Stretch in) {
    const int position = a.first_position + query, first = first_seen(position, a.window);
    const int stop = position + 1 < in.end ? position + 1 : in.end;
    return {first > in.start ? first - in.start : 0, stop - in.start};
}

// Tiles of a stretch that the last query sees.
OCTAVO_INLINE int num_tiles_of(const AttentionTask& a, Stretch in) {
    const int seen = seen_by(a, a.num_queries - 1, in).end;
    return seen <= 0 ? 0 : (seen + kTile - 1) / kTile;
}

// ---- softmax of one row over the tokens that it sees --------------------------------------------------------------

// The largest score. Tokens before the window, and later ones of the last tile (other queries' or stale), become -inf.
float largest(float* s, Span seen) {
    const int n = seen.end, num_whole = n / 16;
    for (int i = 0; i < seen.begin; ++i) s[i] = -kInf;
    V16 top = set1(-kInf);
    for (int i = 0; i < num_whole; ++i) top = max_(top, load(s + i * 16));
    if (n % 16 != 0) {
        const V16 last = keep_n(load(s + num_whole * 16), n % 16, -kInf);
        store(s + num_whole * 16, last);
        top = max_(top, last);
    }
    return max_lanes(top);
}

// ---- a tile of queries ------------------------------------------------------------------------------------------

// Adds the results of a later partition to those of an earlier one, up to 16 rows: acc (n floats), m, l.
struct Fold {
    float* into[16];
    const float* part[16];
    int count = 0;

    void add_row(float* state, const float* result) {
        into[count] = state;
        part[count++] = result;
    }

    void run(int n) {
        if (count == 0) return;
        float by_into[16] = {}, by_part[16] = {};
        for (int i = 0; i < count; ++i) {
            float* m = into[i] + n;
            const float theirs = part[i][n], top = *m > theirs ? *m : theirs;
            by_into[i] = *m - top;
            by_part[i] = theirs - top;
            *m = top;
        }
        store(by_into, exp2_nonpositive(load(by_into)));
        store(by_part, exp2_nonpositive(load(by_part)));
        for (int i = 0; i < count; ++i) {
            const V16 a = set1(by_into[i]), b = set1(by_part[i]);
            for (int d = 0; d < n; d += 16) store(into[i] + d, fma(load(part[i] + d), b, mul(load(into[i] + d), a)));
            float* l = into[i] + n + 1;
            *l = *l * by_into[i] + part[i][n + 1] * by_part[i];
        }
        count = 0;
    }
};

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

// acc of all rows for the first `end` tokens of a stretch. Rows of one block that see fewer tokens than others
// join late or leave early: what lies outside a query's window or beyond its position is never read for it.
template <class T>
void add_values(const AttentionTask& a, Rows rows, Stretch in, const Blocks<T>& blocks, int end, const float* p,
                float* acc, int64_t acc_stride) {
    for (int first = 0; first < rows.count; first += rows.block) {
        const int last = first + rows.in_block(first);
        const bool all_begun = seen_by(a, (last - 1) / a.group, in).begin <= 0;
        int t = 0;
        for (int r = first; r < last && t < end;) {
            const int query = r / a.group;
            const Span seen = seen_by(a, query, in);
            if (seen.end <= t || seen.begin >= end) {
                r = (query + 1) * a.group;
                continue;
            }
            if (t < seen.begin) t = seen.begin;
            int stop = seen.end < end ? seen.end : end, joined = all_begun ? last : (query + 1) * a.group;
            for (int next = query + 1; joined < last; ++next, joined += a.group) {
                const int joins = seen_by(a, next, in).begin;
                if (joins <= t) continue;
                if (joins < stop) stop = joins;
                break;
            }
            blocks.add_values((joined < last ? joined : last) - r, p + static_cast<int64_t>(r) * kPartition, t, stop,
                              acc + r * acc_stride, acc_stride);
            t = stop;
        }
    }
}

// Scores become weights; rows of `result` become (0, m, l). First all of one kind, then all of the next: within a row
// each waits for the one before, while the processor works on several rows at once.
template <class T>
void softmax(const AttentionTask& a, Stretch in, float* p, float* result) {
    const int64_t stride = partial_stride(a.head_dim), padded = padded_head_dim(a.head_dim);
    for (int64_t query = 0, row = 0; query < a.num_queries; ++query, row += a.group) {
        const Span seen = seen_by(a, static_cast<int>(query), in);
        for (int64_t r = row; r < row + a.group && !seen.empty(); ++r) {
            result[r * stride + padded] = a.scale * largest(p + r * kPartition, seen);
        }
    }
    for (int64_t query = 0, row = 0; query < a.num_queries; ++query, row += a.group) {
        const Span seen = seen_by(a, static_cast<int>(query), in);
        for (int64_t r = row; r < row + a.group; ++r) {
            float* to = result + r * stride;
            for (int64_t d = 0; d < padded; d += 16) store(to + d, zero());
            if (!seen.empty()) to[padded + 1] = Blocks<T>::weigh(p + r * kPartition, seen.end, a.scale, to[padded]);
        }
    }
}

template <class T>
OCTAVO_INLINE const T* key_tile(const AttentionTask& a, int index) {
    return static_cast<const T*>(a.keys) + a.tiles[index] * a.tile_stride;
}

// A partition's tiles in the order in which memory is read: keys, values, and the first of what comes next.
template <class T>
struct PartitionTiles {
    const T* stream[2 * kTilesPerPartition + kStepTiles];
    Stretch in;
    int num_tiles;  // that any row sees

    PartitionTiles(const AttentionTask& a, int part) : in(stretch_of(a, part)), num_tiles(num_tiles_of(a, in)), a_(a) {
        const T** values = stream + num_tiles;
        for (int i = 0; i < num_tiles; ++i) {
            stream[i] = key_tile<T>(a, in.start / kTile + i);
            values[i] = stream[i] + a.value_offset;
        }
        const bool last = part + 1 == a.part_end;
        first_next_ = stretch_of(a, last ? a.part_begin : part + 1).start / kTile;
        num_next_ = (a.first_position + a.num_queries + kTile - 1) / kTile - first_next_;
        if (num_next_ > kTilesPerPartition) num_next_ = kTilesPerPartition;
        next_head_ = last ? a.next_head : 0;
        has_next_ = !last || next_head_ != 0;
        for (int i = 0; i < kStepTiles; ++i) {
            values[num_tiles + i] = i < num_next_ ? next_keys(i) : values[num_tiles - 1];
        }
    }

    // A first touch of tiles begin .. end of the next partition. They lie on pages of their own, and finding one takes as
    // long as many reads: too long for what is asked for kStepTiles ahead.
    void find_pages(int begin, int end) const {
        for (int i = begin; i < end && i < num_next_ && has_next_; ++i) {
            prefetch(next_keys(i));
            prefetch(next_keys(i) + a_.value_offset);
        }
    }

    // Keys and values of the next partition's tiles, in the order in which they will be read.
    Ahead<T> ahead() const {
        Ahead<T> ahead;
        for (int i = 0; i < num_next_ && has_next_; ++i) {
            ahead.add(next_keys(i));
            ahead.add(next_keys(i) + a_.value_offset);
        }
        return ahead;
    }

private:
    const T* next_keys(int i) const { return key_tile<T>(a_, first_next_ + i) + next_head_; }

    const AttentionTask& a_;
    int first_next_, num_next_;
    int64_t next_head_;
    bool has_next_;
};

// The queries of a task in bands: the scores of one stay near, and all of them use what was loaded for the first.
struct Band {
    AttentionTask task;
    Rows rows;
    int64_t first_row;
};

Band band_of(const AttentionTask& a, int number, int bands) {
    const int begin = a.num_queries * number / bands, end = a.num_queries * (number + 1) / bands;
    Band band{a, {}, begin * a.group};
    band.task.num_queries = end - begin;
    if (a.query_rows == nullptr) {
        band.task.q += begin * a.row_stride;
        band.task.first_position += begin;
    } else {
        band.task.query_rows += begin;
    }
    band.task.out += begin * a.row_stride;
    const int count = band.task.num_queries * a.group, blocks = (count + kMaxRows - 1) / kMaxRows;
    band.rows = {count, (count + blocks - 1) / blocks};
    return band;
}

// A partition for those rows of a band that see any of it: their rows of `result` become (acc, m, l).
template <class T>
void attend_partition(const Band& band, const PartitionTiles<T>& tiles, const float* packed, float* p,
                      Blocks<T>& blocks, float* result) {
    const AttentionTask& a = band.task;
    const Rows& rows = band.rows;
    const int num_tiles = num_tiles_of(a, tiles.in);
    const auto step_tiles = [&](int t) { return num_tiles - t < kStepTiles ? num_tiles - t : kStepTiles; };
    for (int t = 0; t < num_tiles; t += kStepTiles) {
        if (blocks.take_keys(t, step_tiles(t))) tiles.find_pages(t, t + kStepTiles);
        for (int r = 0; r < rows.count; r += rows.block) {
            blocks.add_scores(rows.in_block(r), packed + static_cast<int64_t>(r) * a.head_dim,
                              p + static_cast<int64_t>(r) * kPartition + t * kTile);
        }
    }
    softmax<T>(a, tiles.in, p, result);
    blocks.take_values(num_tiles);
    add_values(a, rows, tiles.in, blocks, num_tiles * kTile, p, result, partial_stride(a.head_dim));
}

// The results of a later partition go into those of the first one.
void fold_partition(const AttentionTask& a, Stretch in, float* into, const float* results) {
    const int64_t stride = partial_stride(a.head_dim);
    const int part = in.end / kPartition - 1, padded = padded_head_dim(a.head_dim);
    Fold fold;
    for (int64_t query = 0, row = 0; query < a.num_queries; ++query, row += a.group) {
        const int q = static_cast<int>(query);
        if (seen_by(a, q, in).empty()) continue;
        const bool is_first = first_seen(a.first_position + q, a.window) / kPartition == part;
        for (int64_t r = row; r < row + a.group; ++r) {
            float* state = into + r * stride;
            const float* result = results + r * stride;
            if (is_first) {
                std::memcpy(state, result, static_cast<size_t>(stride) * sizeof(float));
            } else {
                fold.add_row(state, result);
                if (fold.count == 16) fold.run(padded);
            }
        }
    }
    fold.run(padded);
}

void write_out(const AttentionTask& a, const float* states) {
    const int64_t stride = partial_stride(a.head_dim);
    const int padded = padded_head_dim(a.head_dim);
    for (int64_t query = 0, row = 0; query < a.num_queries; ++query, row += a.group) {
        float* out = a.out + query * a.row_stride;
        for (int64_t head = 0; head < a.group; ++head) {
            write_row(states + (row + head) * stride, a.head_dim, padded, out + head * a.head_dim);
        }
    }
}

template <class T>
void attend(const AttentionTask& a, float* scratch) {
    const int count = a.num_queries * a.group, bands = num_bands(a.num_queries, a.group);
    const int64_t stride = partial_stride(a.head_dim);
    const int64_t band_rows = (a.num_queries + bands - 1) / bands * a.group;
    float* packed = scratch;
    float* state = packed + static_cast<int64_t>(count) * a.head_dim;
    float* p = state + count * stride;
    float* next = p + band_rows * kPartition;
    float* buffer = next + band_rows * stride;
    for (int i = 0; i < bands; ++i) {
        const Band band = band_of(a, i, bands);
        pack_queries<T>(band.task, band.rows, packed + band.first_row * a.head_dim);
    }
    for (int part = a.part_begin; part < a.part_end; ++part) {
        const PartitionTiles<T> tiles(a, part);
        const bool several = count > kMaxRows;
        const Ahead<T> ahead = several ? tiles.ahead() : Ahead<T>();
        Blocks<T> blocks(buffer, tiles.stream, tiles.num_tiles, a.head_dim, several, ahead);
        for (int i = 0; i < bands; ++i) {
            const Band band = band_of(a, i, bands);
            float* into = state + band.first_row * stride;
            float* result = part == a.part_begin ? into : next;
            if (a.results != nullptr) {
                result = a.partials + (a.results[part - a.part_begin] + band.first_row) * stride;
            }
            attend_partition<T>(band, tiles, packed + band.first_row * a.head_dim, p, blocks, result);
            if (result == next) fold_partition(band.task, tiles.in, into, next);
        }
    }
    if (a.results == nullptr) write_out(a, state);
}

void merge(const AttentionTask& a) {
    const int64_t stride = partial_stride(a.head_dim);
    float* state = a.partials + a.results[0] * stride;
    for (int part = a.part_begin + 1; part < a.part_end; ++part) {
        fold_partition(a, stretch_of(a, part), state, a.partials + a.results[part - a.part_begin] * stride);
    }
    write_out(a, state);
}

}  // namespace

const AttentionKernels attention_kernels = {attend<f16>, attend<float>, merge};

}  // namespace OCTAVO_ISA
}  // namespace octavo
