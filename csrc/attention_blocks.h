// The register blocks of attention: scores and weighted values of a few rows against a few tiles.
//
// Of a row, every sum runs over the same numbers in the same order whatever the rows beside it and however many
// tiles a block takes, so the way work is cut into blocks changes no bit.
//
// Included only by attention_kernels.isa.cpp.
#pragma once

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

// Memory is asked for kStepTiles ahead: tiles are scattered, so the hardware cannot guess the next one.
OCTAVO_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }
OCTAVO_INLINE void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }  // into the second-level cache

// Tiles that will be needed a partition later: one of them is asked for while a block computes, so that no time goes by
// with nothing but reading.
template <class T>
class Ahead {
public:
    void add(const T* tile) { tiles_[count_++] = tile; }
    // The next one, or if there is none left something that is near.
    const T* take(const T* near) { return next_ < count_ ? tiles_[next_++] : near; }

private:
    const T* tiles_[2 * kTilesPerPartition];
    int count_ = 0, next_ = 0;
};

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

// ---- scores: s[row][token] = sum over d, in order, of q[row][d] * key[d][token] ------------------------

// q: [D, R]. keys: N tiles; keys[kStepTiles ..] will be needed next. s: R rows of stride kPartition, the first of
// 16 * N columns.
template <class T, int R, int N>
void score_block(const float* q, const T* const* keys, int head_dim, float* s) {
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
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int i = 0; i < kRegs; ++i) store(s + r * kPartition + i * kLanes, acc[r][i]);
    }
}

template <class T>
using ScoreFn = void (*)(const float*, const T* const*, int, float*);

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
void scores(int rows, const float* q, const T* const* keys, int num_tiles, int head_dim, float* s) {
    const ScoreFns<T> fns = score_for<T>(rows);
    for (int t = 0; t < num_tiles;) {
        const int left = num_tiles - t;
        const int n = left >= fns.tiles ? fns.tiles : left >= 2 && fns.tiles > 2 ? 2 : 1;
        (n == fns.tiles ? fns.wide : n == 2 ? fns.two : fns.one)(q, keys + t, head_dim, s + t * kTile);
        t += n;
    }
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

// ---- as attention uses them: some tiles of a partition at a time, for all rows of a band ---------------------------

template <class T>
class Blocks {
public:
    // stream: the partition's keys, its values, and kStepTiles tiles that will be needed next. several: blocks of rows,
    // for the same tiles. buffer: room for a partition's keys and values in half the bits. ahead: what to ask for meanwhile.
    Blocks(float*, const T* const* stream, int num_tiles, int head_dim, bool, Ahead<T>)
        : keys_(stream), values_(stream + num_tiles), head_dim_(head_dim) {}
    static void prepare_queries(float*, int, int) {}

    // Scores s become weights 2^(scale s - m), as add_values takes them; returns their sum.
    static float weigh(float* s, int n, float scale, float m) {
        const int num_vectors = (n + 15) / 16;
        const V16 by = set1(scale), shift = set1(-m);
        V16 sum = zero();
        for (int i = 0; i < num_vectors; ++i) {
            const V16 p = exp2_nonpositive(fma(load(s + i * 16), by, shift));
            store(s + i * 16, p);
            sum = add(sum, p);
        }
        return sum_lanes(sum);
    }

    // Tiles first .. first + n of the keys are for add_scores. True if some of them are read for the first time.
    bool take_keys(int first, int n) {
        first_ = first;
        num_ = n;
        const bool is_new = first + n > num_seen_;
        if (is_new) num_seen_ = first + n;
        return is_new;
    }
    // The rows of s begin with the first tile that was taken.
    void add_scores(int rows, const float* q, float* s) {
        scores(rows, q, keys_ + first_, num_, head_dim_, s);
    }

    // The first n tiles of the values are for add_values.
    void take_values(int) {}
    void add_values(int rows, const float* p, int begin, int end, float* acc, int64_t acc_stride) const {
        values_of_rows(rows, p, values_, begin, end, head_dim_, acc, acc_stride);
    }

private:
    const T* const* keys_;
    const T* const* values_;
    int head_dim_, first_ = 0, num_ = 0, num_seen_ = 0;
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo
