#include "attention_kernels.h"

#include "vec16.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// Rows that one register block holds, and its budget of accumulators (in units of V16).
#if OCTAVO_ISA_LEVEL == 2
constexpr int kMaxRows = 12, kBudget = 24;
#elif OCTAVO_ISA_LEVEL == 1
constexpr int kMaxRows = 6, kBudget = 6;
#else
constexpr int kMaxRows = 4, kBudget = 4;
#endif

// Tiles between passes over all rows: their keys, then their values, stay in the first-level cache. It is also how far
// ahead memory is asked for: tiles are scattered, so the hardware cannot guess the next one.
constexpr int kStepTiles = 4;

OCTAVO_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }

constexpr int widest(int rows) { return rows * 4 <= kBudget ? 4 : rows * 2 <= kBudget ? 2 : 1; }

constexpr int kRegsOfTile = kTile / kLanes;

// acc[r][i] += x[r] * y[i]. With few rows the x stay in registers and the y pass by, else the other way round.
template <int R, int N, class X, class Y>
OCTAVO_INLINE void add_products(Reg (&acc)[R][N], const X& x, const Y& y) {
    if constexpr (R < N) {
        Reg xs[R];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) xs[r] = x(r);
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) {
            const Reg yi = y(i);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) acc[r][i] = fma(xs[r], yi, acc[r][i]);
        }
    } else {
        Reg ys[N];
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) ys[i] = y(i);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const Reg xr = x(r);
#pragma GCC unroll 8
            for (int i = 0; i < N; ++i) acc[r][i] = fma(xr, ys[i], acc[r][i]);
        }
    }
}

// ---- scores: s[row][token] = scale * sum over d, in order, of q[row][d] * key[d][token] ------------------------

// q: [D, R]. keys: N tiles; keys[kStepTiles ..] will be needed next. s: R rows of stride kPartition, the first of
// 16 * N columns.
template <class T, int R, int N>
void score_block(const float* q, const T* const* keys, int head_dim, float scale, float* s) {
    constexpr int kRegs = N * kRegsOfTile;
    Reg acc[R][kRegs];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int i = 0; i < kRegs; ++i) acc[r][i] = reg_zero();
    }
    const T *k[N], *ahead[N];
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) {
        k[j] = keys[j];
        ahead[j] = keys[j + kStepTiles];
    }
    constexpr int kLineRows = 64 / (kTile * sizeof(T));  // d of a cache line: 2 or 1, and head_dim is even
    for (int64_t d = 0; d < head_dim; d += kLineRows) {
#pragma GCC unroll 4
        for (int j = 0; j < N; ++j) prefetch(ahead[j] + d * kTile);
#pragma GCC unroll 2
        for (int64_t e = d; e < d + kLineRows; ++e) {
            add_products(
                acc, [&](int r) __attribute__((always_inline)) { return reg_set1(q[e * R + r]); },
                [&](int i) __attribute__((always_inline)) {
                    return reg_load(k[i / kRegsOfTile] + e * kTile + i % kRegsOfTile * kLanes);
                });
        }
    }
    const Reg by = reg_set1(scale);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int i = 0; i < kRegs; ++i) store(s + r * kPartition + i * kLanes, mul(acc[r][i], by));
    }
}

template <class T>
using ScoreFn = void (*)(const float*, const T* const*, int, float, float*);

// The widest block for R rows, and the narrower ones for the tiles that are left.
template <class T>
struct ScoreFns {
    ScoreFn<T> wide, two, one;
    int tiles;
};

template <class T, int R>
constexpr ScoreFns<T> score_fns() {
    constexpr int n = widest(R);
    return {score_block<T, R, n>, score_block<T, R, n >= 2 ? 2 : 1>, score_block<T, R, 1>, n};
}

template <class T>
ScoreFns<T> score_for(int rows) {
    static constexpr ScoreFns<T> kFns[] = {
        score_fns<T, 1>(), score_fns<T, 2>(), score_fns<T, 3>(), score_fns<T, 4>(),
#if OCTAVO_ISA_LEVEL >= 1
        score_fns<T, 5>(), score_fns<T, 6>(),
#endif
#if OCTAVO_ISA_LEVEL == 2
        score_fns<T, 7>(), score_fns<T, 8>(), score_fns<T, 9>(), score_fns<T, 10>(), score_fns<T, 11>(),
        score_fns<T, 12>(),
#endif
    };
    return kFns[rows - 1];
}

template <class T>
void scores(int rows, const float* q, const T* const* keys, int num_tiles, int head_dim, float scale, float* s) {
    const ScoreFns<T> fns = score_for<T>(rows);
    for (int t = 0; t < num_tiles;) {
        const int left = num_tiles - t;
        const int n = left >= fns.tiles ? fns.tiles : left >= 2 && fns.tiles > 2 ? 2 : 1;
        (n == fns.tiles ? fns.wide : n == 2 ? fns.two : fns.one)(q, keys + t, head_dim, scale, s + t * kTile);
        t += n;
    }
}

// ---- softmax of one row over its first n tokens; s becomes exp(s - m) -------------------------------------------

void softmax_row(float* s, int n, float* max_out, float* sum_out) {
    const int num_vectors = (n + 15) / 16;
    V16 top = set1(-kInf);
    for (int i = 0; i < num_vectors; ++i) {
        V16 x = load(s + i * 16);
        if (n - i * 16 < 16) {  // later tokens of the tile: other queries' or stale
            x = keep_n(x, n - i * 16, -kInf);
            store(s + i * 16, x);
        }
        top = max_(top, x);
    }
    const float m = max_lanes(top);
    const V16 shift = set1(m);
    V16 sum = zero();
    for (int i = 0; i < num_vectors; ++i) {
        const V16 p = exp_(sub(load(s + i * 16), shift));
        store(s + i * 16, p);
        sum = add(sum, p);
    }
    *max_out = m;
    *sum_out = sum_lanes(sum);
}

// ---- values: acc[row][d] += sum over tokens, in order, of p[row][token] * value[token][d] -----------------------

// p: R rows of stride kPartition. values: the partition's tiles; values[t + kStepTiles] will be needed after t.
// acc: R rows of stride acc_stride, moved to the first d. N vectors of d, or, with Half, only the lower 8 lanes of one.
template <class T, int R, int N, bool Half>
void value_block(const float* p, const T* const* values, int64_t d, int begin, int end, int head_dim, float* acc,
                 int64_t acc_stride) {
    constexpr int kRegs = Half ? 1 : N * (16 / kLanes);
    constexpr int kLine = 64 / sizeof(T);
    Reg sum[R][kRegs];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int i = 0; i < kRegs; ++i) sum[r][i] = reg_load(acc + r * acc_stride + i * kLanes);
    }
    for (int t = begin; t < end;) {
        const int64_t offset = static_cast<int64_t>(t % kTile) * head_dim + d;
        const T* v = values[t / kTile] + offset;
        const T* ahead = values[t / kTile + kStepTiles] + offset;
        const int stop = (t / kTile + 1) * kTile < end ? (t / kTile + 1) * kTile : end;
        for (; t < stop; ++t, v += head_dim, ahead += head_dim) {
#pragma GCC unroll 4
            for (int i = 0; i < N * 16; i += kLine) prefetch(ahead + i);
            add_products(
                sum, [&](int r) __attribute__((always_inline)) { return reg_set1(p[r * kPartition + t]); },
                [&](int i) __attribute__((always_inline)) { return Half ? reg_load8(v) : reg_load(v + i * kLanes); });
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int i = 0; i < kRegs; ++i) store(acc + r * acc_stride + i * kLanes, sum[r][i]);
    }
}

template <class T>
using ValueFn = void (*)(const float*, const T* const*, int64_t, int, int, int, float*, int64_t);

template <class T>
struct ValueFns {
    ValueFn<T> wide, two, one, half;
    int vectors;
};

template <class T, int R>
constexpr ValueFns<T> value_fns() {
    constexpr int n = widest(R);
    return {value_block<T, R, n, false>, value_block<T, R, n >= 2 ? 2 : 1, false>, value_block<T, R, 1, false>,
            value_block<T, R, 1, true>, n};
}

template <class T>
ValueFns<T> value_for(int rows) {
    static constexpr ValueFns<T> kFns[] = {
        value_fns<T, 1>(), value_fns<T, 2>(), value_fns<T, 3>(), value_fns<T, 4>(),
#if OCTAVO_ISA_LEVEL >= 1
        value_fns<T, 5>(), value_fns<T, 6>(),
#endif
#if OCTAVO_ISA_LEVEL == 2
        value_fns<T, 7>(), value_fns<T, 8>(), value_fns<T, 9>(), value_fns<T, 10>(), value_fns<T, 11>(),
        value_fns<T, 12>(),
#endif
    };
    return kFns[rows - 1];
}

template <class T>
void values_of_rows(int rows, const float* p, const T* const* values, int begin, int end, int head_dim, float* acc,
                    int64_t acc_stride) {
    const ValueFns<T> fns = value_for<T>(rows);
    for (int d = 0; d < head_dim;) {
        const int left = (head_dim - d) / 16;
        const int n = left >= fns.vectors ? fns.vectors : left >= 2 && fns.vectors > 2 ? 2 : left >= 1 ? 1 : 0;
        const ValueFn<T> fn = n == 0 ? fns.half : n == fns.vectors ? fns.wide : n == 2 ? fns.two : fns.one;
        fn(p, values, d, begin, end, head_dim, acc + d, acc_stride);
        d += n == 0 ? 8 : n * 16;
    }
}

// ---- a tile of queries ------------------------------------------------------------------------------------------

// Adds a later partition's (acc, m, l) to an earlier one's. Rows of n floats, then m and l.
void fold(float* into, const float* part, int n) {
    float* m = into + n;
    float* l = into + n + 1;
    const float top = *m > part[n] ? *m : part[n];
    const float a = exp_(*m - top), b = exp_(part[n] - top);
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

// [block][D][rows of the block]
void pack_queries(const AttentionTask& a, Rows rows, float* packed) {
    for (int first = 0; first < rows.count; first += rows.block) {
        const int n = rows.in_block(first);
        float* to = packed + static_cast<int64_t>(first) * a.head_dim;
        for (int r = 0; r < n; ++r) {
            const int query = (first + r) / a.group, head = (first + r) % a.group;
            const float* from = a.q + query * a.row_stride + static_cast<int64_t>(head) * a.head_dim;
            for (int d = 0; d < a.head_dim; ++d) to[static_cast<int64_t>(d) * n + r] = from[d];
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
    const int64_t stride = partial_stride(a.head_dim), padded = padded_head_dim(a.head_dim);
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
    for (int r = 0; r < rows.count; ++r) {
        float* row = result + r * stride;
        const int n = visible(a, r, start);
        for (int64_t d = 0; d < padded; ++d) row[d] = 0.0f;
        if (n > 0) softmax_row(p + static_cast<int64_t>(r) * kPartition, n, row + padded, row + padded + 1);
    }
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
    if (a.partials != nullptr) {
        for (int part = a.part_begin; part < a.part_end; ++part) {
            attend_partition<T>(a, rows, part, packed, p, a.partials + (part - a.part_begin) * count * stride);
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
    for (int r = 0; r < count; ++r) {
        float* state = a.partials + r * stride;
        for (int part = 1; part < a.part_end && visible(a, r, part * kPartition) > 0; ++part) {
            fold(state, a.partials + (static_cast<int64_t>(part) * count + r) * stride, padded);
        }
        write_row(state, a.head_dim, padded, out_row(a, r));
    }
}

}  // namespace

const AttentionKernels attention_kernels = {attend<f16>, attend<float>, merge};

}  // namespace OCTAVO_ISA
}  // namespace octavo
