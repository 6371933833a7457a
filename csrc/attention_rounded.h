// The same register blocks for float16 memory on processors that multiply bfloat16 (AVX512_BF16): queries, keys, weights
// and values are rounded to bfloat16, two of their products go into one instruction, and sums stay float32.
//
// A pair of numbers lies in 32 bits, the earlier one in the upper half: vdpbf16ps adds the product of the upper halves,
// rounds, then adds that of the lower ones. So sums run in the order of attention_blocks.h, one rounding for each number,
// and a pair of which one half is zero may be done in two steps: the way work is cut changes no bit here either.
//
// Included only by attention_kernels.isa.cpp.
#pragma once

#include "attention_blocks.h"

#if defined(__AVX512BF16__)

namespace octavo {
namespace OCTAVO_ISA {
namespace {

using Pair = uint32_t;

constexpr int kTilePairs = kTile / 2;

OCTAVO_INLINE V16 load_pairs(const Pair* p) { return {_mm512_loadu_ps(p)}; }
OCTAVO_INLINE void store_pairs(Pair* p, V16 a) { _mm512_storeu_ps(p, a.v); }
OCTAVO_INLINE V16 set1_pair(Pair x) { return {_mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(x)))}; }

// acc + the product of the upper halves, + that of the lower ones.
OCTAVO_INLINE V16 dot2(V16 x, V16 y, V16 acc) {
    return {_mm512_dpbf16_ps(acc.v, reinterpret_cast<__m512bh>(x.v), reinterpret_cast<__m512bh>(y.v))};
}

// Pairs of numbers of two vectors, lane by lane, rounded to nearest even.
OCTAVO_INLINE V16 pair_up(V16 earlier, V16 later) {
    const __m512i both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(earlier.v, later.v));  // later in the lower half
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return {_mm512_castsi512_ps(_mm512_permutexvar_epi16(order, both))};
}

OCTAVO_INLINE V16 keep_half(V16 pairs, Pair mask) {
    return {_mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(pairs.v), _mm512_set1_epi32(static_cast<int>(mask))))};
}

// acc[r][i] += x[r] . y[i], pairs.
template <int R, int N, class X, class Y>
OCTAVO_INLINE void add_pairs(V16 (&acc)[R][N], const X& x, const Y& y) {
    V16 ys[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) ys[i] = y(i);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
        const V16 xr = set1_pair(x(r));
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) acc[r][i] = dot2(xr, ys[i], acc[r][i]);
    }
}

// ---- rounding ---------------------------------------------------------------------------------------------------

// Queries of n rows, [D, n] -> [D / 2, n] pairs, in place.
void round_queries(float* q, int n, int head_dim) {
    Pair* to = reinterpret_cast<Pair*>(q);
    for (int64_t d = 0; d < head_dim; d += 2) {
        const V16 pairs = pair_up(load_n(q + d * n, n), load_n(q + (d + 1) * n, n));
        _mm512_mask_storeu_ps(to + d / 2 * n, static_cast<__mmask16>((1u << n) - 1u), pairs.v);
    }
}

// The weights of 32 tokens -> 16 pairs.
OCTAVO_INLINE V16 pairs_of(V16 first, V16 second) {
    const __m512i both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second.v, first.v));
    return {_mm512_castsi512_ps(_mm512_rol_epi32(both, 16))};
}

// Keys of n tiles, [D, 16 tokens] -> [D / 2, 16 tokens] pairs. keys[kStepTiles ..] will be needed next.
void round_keys(const f16* const* keys, int n, int head_dim, Pair* to) {
    for (int j = 0; j < n; ++j) {
        const f16* k = keys[j];
        const f16* ahead = keys[j + kStepTiles];
        for (int64_t d = 0; d < head_dim; d += 2, k += 2 * kTile, ahead += 2 * kTile, to += kTile) {
            prefetch(ahead);
            store_pairs(to, pair_up(load(k), load(k + kTile)));
        }
    }
}

// Values of n tiles, [16 tokens, D] -> [8, D padded to 16] pairs. values[kStepTiles ..] will be needed next.
void round_values(const f16* const* values, int n, int head_dim, Pair* to) {
    const int whole = head_dim / 16 * 16;
    for (int j = 0; j < n; ++j) {
        const f16* v = values[j];
        const f16* ahead = values[j + kStepTiles];
        for (int t = 0; t < kTile; t += 2, v += 2 * head_dim, ahead += 2 * head_dim) {
            for (int d = 0; d < whole; d += 16, to += 16) {
                prefetch(ahead + 2 * d);
                store_pairs(to, pair_up(load(v + d), load(v + head_dim + d)));
            }
            if (whole == head_dim) continue;
            prefetch(ahead + 2 * whole);
            store_pairs(to, pair_up(load8(v + whole), load8(v + head_dim + whole)));
            to += 16;
        }
    }
}

// ---- where pairs come from: memory, rounded as it is read, or what was rounded before for several blocks of rows ----

struct RawKeys {
    const f16* const* tiles;  // tiles[kStepTiles ..] will be needed next
    RawKeys from(int tile) { return {tiles + tile}; }
    OCTAVO_INLINE V16 load_pairs_at(int tile, int64_t d) const {
        const f16* k = tiles[tile] + 2 * d * kTile;
        prefetch(tiles[tile + kStepTiles] + 2 * d * kTile);
        return pair_up(load(k), load(k + kTile));
    }
};

struct RoundedKeys {
    const Pair* pairs;
    int64_t tile_pairs;  // of a tile
    const f16* near;
    Ahead<f16>* ahead;
    const f16* wanted = nullptr;  // by and by, a line for each d
    RoundedKeys from(int tile) { return {pairs + tile * tile_pairs, tile_pairs, near, ahead, ahead->take(near)}; }
    OCTAVO_INLINE V16 load_pairs_at(int tile, int64_t d) const {
        if (tile == 0) prefetch_far(wanted + 2 * d * kTile);
        return load_pairs(pairs + tile * tile_pairs + d * kTile);
    }
};

struct RawValues {
    const f16* const* tiles;
    int64_t head_dim, d;  // the first dimension that is wanted
    RawValues from(int by) const { return {tiles, head_dim, d + by}; }
    template <bool Half>
    OCTAVO_INLINE V16 load_pairs_at(int k, int i) const {
        const int64_t offset = k % kTilePairs * 2 * head_dim + d + i * 16;
        const f16* v = tiles[k / kTilePairs] + offset;
        prefetch(tiles[k / kTilePairs + kStepTiles] + offset + i % 2 * head_dim);  // a line is two vectors of a token
        return Half ? pair_up(load8(v), load8(v + head_dim)) : pair_up(load(v), load(v + head_dim));
    }
};

struct RoundedValues {
    const Pair* pairs;  // of the token that is number 0, moved to the first dimension
    int64_t padded;
    RoundedValues from(int by) const { return {pairs + by, padded}; }
    template <bool>
    OCTAVO_INLINE V16 load_pairs_at(int k, int i) const {
        return load_pairs(pairs + k * padded + i * 16);
    }
};

// ---- scores, as score_block -------------------------------------------------------------------------------------

// q: [D / 2, R] pairs. keys: N tiles.
template <class Keys, int R, int N>
void score_pairs(const Pair* q, const Keys& keys, int head_dim, float* s) {
    V16 acc[R][N];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) acc[r][i] = zero();
    }
    for (int64_t d = 0; d < head_dim / 2; ++d) {
        add_pairs(
            acc, [&](int r) __attribute__((always_inline)) { return q[d * R + r]; },
            [&](int i) __attribute__((always_inline)) { return keys.load_pairs_at(i, d); });
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) store(s + r * kPartition + i * kTile, acc[r][i]);
    }
}

// ---- values, as value_block -------------------------------------------------------------------------------------

// p: pairs of R rows of stride kPartition, of the same token 0 as values. N vectors of d, or the lower half of one.
template <class Values, int R, int N, bool Half>
void value_pairs(const Pair* p, const Values& values, int begin, int end, float* acc, int64_t acc_stride) {
    V16 sum[R][N];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) sum[r][i] = load(acc + r * acc_stride + i * 16);
    }
    const auto add = [&](int k, const auto& kept) __attribute__((always_inline)) {
        add_pairs(
            sum, [&](int r) __attribute__((always_inline)) { return p[r * kPartition + k]; },
            [&](int i) __attribute__((always_inline)) { return kept(values.template load_pairs_at<Half>(k, i)); });
    };
    const auto later = [](V16 x) __attribute__((always_inline)) { return keep_half(x, 0x0000ffffu); };
    const auto earlier = [](V16 x) __attribute__((always_inline)) { return keep_half(x, 0xffff0000u); };
    int k = begin / 2;
    if (begin % 2 != 0) add(k++, later);
    for (; k < end / 2; ++k) add(k, [](V16 x) __attribute__((always_inline)) { return x; });
    if (end % 2 != 0) add(end / 2, earlier);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) store(acc + r * acc_stride + i * 16, sum[r][i]);
    }
}

// ---- for any number of rows --------------------------------------------------------------------------------------

template <class Keys>
using ScorePairsFn = void (*)(const Pair*, const Keys&, int, float*);
template <class Values>
using ValuePairsFn = void (*)(const Pair*, const Values&, int, int, float*, int64_t);

// The widest block for some number of rows, and the narrower ones for what is left.
template <class Fn>
struct Widths {
    Fn wide, two, one, half;
    int most;
};

// How many of `left` tiles or vectors the next block takes.
template <class Fn>
OCTAVO_INLINE int next_width(const Widths<Fn>& fns, int left) {
    return left >= fns.most ? fns.most : left >= 2 && fns.most > 2 ? 2 : 1;
}
template <class Fn>
OCTAVO_INLINE Fn of_width(const Widths<Fn>& fns, int n) {
    return n == fns.most ? fns.wide : n == 2 ? fns.two : fns.one;
}

template <class Keys, int R>
constexpr Widths<ScorePairsFn<Keys>> score_widths() {
    constexpr int n = widest(R);
    return {score_pairs<Keys, R, n>, score_pairs<Keys, R, n >= 2 ? 2 : 1>, score_pairs<Keys, R, 1>, nullptr, n};
}

template <class Values, int R>
constexpr Widths<ValuePairsFn<Values>> value_widths() {
    constexpr int n = widest(R);
    return {value_pairs<Values, R, n, false>, value_pairs<Values, R, n >= 2 ? 2 : 1, false>,
            value_pairs<Values, R, 1, false>, value_pairs<Values, R, 1, true>, n};
}

// f<rows of 1, 2, ... 12>
#define OCTAVO_FOR_ROWS(f, T) \
    {f<T, 1>(), f<T, 2>(), f<T, 3>(), f<T, 4>(), f<T, 5>(), f<T, 6>(), \
     f<T, 7>(), f<T, 8>(), f<T, 9>(), f<T, 10>(), f<T, 11>(), f<T, 12>()}

template <class Keys>
void scores_of_pairs(int rows, const Pair* q, Keys keys, int num_tiles, int head_dim, float* s) {
    static constexpr Widths<ScorePairsFn<Keys>> kFns[] = OCTAVO_FOR_ROWS(score_widths, Keys);
    const auto& fns = kFns[rows - 1];
    for (int t = 0, n; t < num_tiles; t += n) {
        n = next_width(fns, num_tiles - t);
        of_width(fns, n)(q, keys.from(t), head_dim, s + t * kTile);
    }
}

template <class Values>
void values_of_pairs(int rows, const Pair* p, const Values& values, int begin, int end, int head_dim, float* acc,
                     int64_t acc_stride) {
    static constexpr Widths<ValuePairsFn<Values>> kFns[] = OCTAVO_FOR_ROWS(value_widths, Values);
    const auto& fns = kFns[rows - 1];
    for (int d = 0; d < head_dim;) {
        const int left = (head_dim - d) / 16, n = left == 0 ? 1 : next_width(fns, left);
        (left == 0 ? fns.half : of_width(fns, n))(p, values.from(d), begin, end, acc + d, acc_stride);
        d += n * 16;
    }
}

#undef OCTAVO_FOR_ROWS

template <>
class Blocks<f16> {
public:
    Blocks(float* buffer, const f16* const* stream, int num_tiles, int head_dim, bool several,
           const Ahead<f16>& ahead)
        : keys_(stream),
          values_(stream + num_tiles),
          head_dim_(head_dim),
          padded_(padded_head_dim(head_dim)),
          key_pairs_(reinterpret_cast<Pair*>(buffer)),
          value_pairs_(key_pairs_ + kTilesPerPartition * padded_ * kTilePairs),
          several_(several),
          ahead_(ahead) {}
    static void prepare_queries(float* q, int n, int head_dim) { round_queries(q, n, head_dim); }

    // The weights are rounded in place.
    static float weigh(float* s, int n, float scale, float m) {
        const int num_vectors = (n + 15) / 16;
        const V16 by = set1(scale), shift = set1(-m);
        Pair* to = reinterpret_cast<Pair*>(s);
        V16 sum = zero();
        int i = 0;
        for (; i + 2 <= num_vectors; i += 2) {
            const V16 first = exp2_nonpositive(fma(load(s + i * 16), by, shift));
            const V16 second = exp2_nonpositive(fma(load(s + i * 16 + 16), by, shift));
            store_pairs(to + i * 8, pairs_of(first, second));
            sum = add(add(sum, first), second);
        }
        if (i < num_vectors) {
            const V16 last = exp2_nonpositive(fma(load(s + i * 16), by, shift));
            store_pairs(to + i * 8, pairs_of(last, zero()));
            sum = add(sum, last);
        }
        return sum_lanes(sum);
    }

    bool take_keys(int first, int n) {
        first_ = first;
        num_ = n;
        const int end = first + n, done = num_keys_;
        if (end <= done) return false;
        if (several_) round_keys(keys_ + done, end - done, head_dim_, key_pairs_ + done * head_dim_ * kTilePairs);
        num_keys_ = end;
        return true;
    }
    void add_scores(int rows, const float* q, float* s) {
        const Pair* by = reinterpret_cast<const Pair*>(q);
        if (several_) {
            const int64_t tile_pairs = static_cast<int64_t>(head_dim_) * kTilePairs;
            const RoundedKeys keys{key_pairs_ + first_ * tile_pairs, tile_pairs, keys_[first_], &ahead_};
            scores_of_pairs(rows, by, keys, num_, head_dim_, s);
        } else {
            scores_of_pairs(rows, by, RawKeys{keys_ + first_}, num_, head_dim_, s);
        }
    }

    void take_values(int n) {
        const int done = num_values_;
        if (!several_ || n <= done) return;
        round_values(values_ + done, n - done, head_dim_, value_pairs_ + done * padded_ * kTilePairs);
        num_values_ = n;
    }
    void add_values(int rows, const float* p, int begin, int end, float* acc, int64_t acc_stride) const {
        const Pair* by = reinterpret_cast<const Pair*>(p);
        if (several_) {
            values_of_pairs(rows, by, RoundedValues{value_pairs_, padded_}, begin, end, head_dim_, acc, acc_stride);
        } else {
            values_of_pairs(rows, by, RawValues{values_, head_dim_, 0}, begin, end, head_dim_, acc, acc_stride);
        }
    }

private:
    const f16* const* keys_;
    const f16* const* values_;
    int head_dim_, padded_;
    Pair* key_pairs_;    // of the tiles that were taken so far
    Pair* value_pairs_;
    bool several_;
    Ahead<f16> ahead_;
    int first_ = 0, num_ = 0, num_keys_ = 0, num_values_ = 0;
};

}  // namespace
}  // namespace OCTAVO_ISA
}  // namespace octavo

#endif
