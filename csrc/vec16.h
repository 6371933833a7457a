// Sixteen float lanes, the unit of the row kernels: one AVX-512 register, two AVX2 registers, or a
// plain array. Every instruction set runs the same operations on the same lanes in the same order, so
// results differ between them only where the portable build has no fused multiply-add.
//
// Included only by *.isa.cpp files (isa.h); everything is in the namespace of the instruction set and
// always inlined, so that the linker never mixes them.
#pragma once

#include <cstdint>
#include <cstring>

#if OCTAVO_ISA_LEVEL >= 1
// GCC 12's own header sets off these two warnings.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace octavo {

// IEEE binary16 as stored in KV memory.
struct f16 {
    uint16_t bits;
};

namespace OCTAVO_ISA {

#define OCTAVO_INLINE inline __attribute__((always_inline))

constexpr float kInf = __builtin_inff();
constexpr float kF16Max = 65504.0f;

// ---- operations -------------------------------------------------------------------------------
// max_(a, b) is a > b ? a : b and min_(a, b) is a < b ? a : b: with a NaN in either, b (x86's rule).
// load8: eight values, upper lanes zero. less(a, b, x, y): a < b ? x : y lane by lane, y for NaN.
// pow2_mul(p, t): p * 2^n where t = 1.5 * 2^23 + n; p * 2^n must be a normal number.

#if OCTAVO_ISA_LEVEL == 2

struct V16 {
    __m512 v;
};

OCTAVO_INLINE V16 zero() { return {_mm512_setzero_ps()}; }
OCTAVO_INLINE V16 set1(float x) { return {_mm512_set1_ps(x)}; }
OCTAVO_INLINE V16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
OCTAVO_INLINE V16 load8(const float* p) { return {_mm512_maskz_loadu_ps(0x00ff, p)}; }
OCTAVO_INLINE V16 load(const f16* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
OCTAVO_INLINE V16 load8(const f16* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm512_cvtph_ps(_mm256_zextsi128_si256(half))};
}
OCTAVO_INLINE V16 load_n(const float* p, int n) {
    return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), p)};
}
OCTAVO_INLINE void store(float* p, V16 a) { _mm512_storeu_ps(p, a.v); }
OCTAVO_INLINE void store_n(float* p, V16 a, int n) {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1u), a.v);
}
OCTAVO_INLINE V16 add(V16 a, V16 b) { return {_mm512_add_ps(a.v, b.v)}; }
OCTAVO_INLINE V16 sub(V16 a, V16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
OCTAVO_INLINE V16 mul(V16 a, V16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
OCTAVO_INLINE V16 div(V16 a, V16 b) { return {_mm512_div_ps(a.v, b.v)}; }
OCTAVO_INLINE V16 fma(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
OCTAVO_INLINE V16 max_(V16 a, V16 b) { return {_mm512_max_ps(a.v, b.v)}; }
OCTAVO_INLINE V16 min_(V16 a, V16 b) { return {_mm512_min_ps(a.v, b.v)}; }
OCTAVO_INLINE V16 less(V16 a, V16 b, V16 x, V16 y) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
// Lanes from n on become `fill`, whatever they held.
OCTAVO_INLINE V16 keep_n(V16 a, int n, float fill) {
    return {_mm512_mask_blend_ps(static_cast<__mmask16>((1u << n) - 1u), _mm512_set1_ps(fill), a.v)};
}
OCTAVO_INLINE V16 pow2_mul(V16 p, V16 t) {
    const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t.v), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p.v), n))};
}
// less(x, low, 0, pow2_mul(p, t))
OCTAVO_INLINE V16 pow2_mul_above(V16 x, V16 low, V16 p, V16 t) {
    const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t.v), 23);
    const __mmask16 above = _mm512_cmp_ps_mask(x.v, low.v, _CMP_NLT_UQ);
    return {_mm512_castsi512_ps(_mm512_maskz_add_epi32(above, _mm512_castps_si512(p.v), n))};
}
OCTAVO_INLINE void store_f16(f16* p, V16 a) {
    const __m512 x = _mm512_min_ps(_mm512_set1_ps(kF16Max), _mm512_max_ps(_mm512_set1_ps(-kF16Max), a.v));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#elif OCTAVO_ISA_LEVEL == 1

struct V16 {
    __m256 lo, hi;
};

OCTAVO_INLINE V16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
OCTAVO_INLINE V16 set1(float x) {
    const __m256 v = _mm256_set1_ps(x);
    return {v, v};
}
OCTAVO_INLINE V16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
OCTAVO_INLINE V16 load8(const float* p) { return {_mm256_loadu_ps(p), _mm256_setzero_ps()}; }
OCTAVO_INLINE V16 load(const f16* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
OCTAVO_INLINE V16 load8(const f16* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_setzero_ps()};
}
OCTAVO_INLINE void store(float* p, V16 a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
OCTAVO_INLINE V16 load_n(const float* p, int n) {
    float x[16] = {};
    std::memcpy(x, p, static_cast<size_t>(n) * sizeof(float));
    return load(x);
}
OCTAVO_INLINE void store_n(float* p, V16 a, int n) {
    float x[16];
    store(x, a);
    std::memcpy(p, x, static_cast<size_t>(n) * sizeof(float));
}
#define OCTAVO_BOTH(name, op)                                           \
    OCTAVO_INLINE V16 name(V16 a, V16 b) {                                \
        return {_mm256_##op##_ps(a.lo, b.lo), _mm256_##op##_ps(a.hi, b.hi)}; \
    }
OCTAVO_BOTH(add, add)
OCTAVO_BOTH(sub, sub)
OCTAVO_BOTH(mul, mul)
OCTAVO_BOTH(div, div)
OCTAVO_BOTH(max_, max)
OCTAVO_BOTH(min_, min)
#undef OCTAVO_BOTH
OCTAVO_INLINE V16 fma(V16 a, V16 b, V16 c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
OCTAVO_INLINE V16 less(V16 a, V16 b, V16 x, V16 y) {
    return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
OCTAVO_INLINE V16 keep_n(V16 a, int n, float fill) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256 f = _mm256_set1_ps(fill);
    const __m256i lo = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
    const __m256i hi = _mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), lane);
    return {_mm256_blendv_ps(f, a.lo, _mm256_castsi256_ps(lo)),
          _mm256_blendv_ps(f, a.hi, _mm256_castsi256_ps(hi))};
}
OCTAVO_INLINE V16 pow2_mul(V16 p, V16 t) {
    const __m256i lo = _mm256_slli_epi32(_mm256_castps_si256(t.lo), 23);
    const __m256i hi = _mm256_slli_epi32(_mm256_castps_si256(t.hi), 23);
    return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p.lo), lo)),
          _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p.hi), hi))};
}
OCTAVO_INLINE void store_f16(f16* p, V16 a) {
    const __m256 top = _mm256_set1_ps(kF16Max), low = _mm256_set1_ps(-kF16Max);
    constexpr int kRound = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const __m256 lo = _mm256_min_ps(top, _mm256_max_ps(low, a.lo));
    const __m256 hi = _mm256_min_ps(top, _mm256_max_ps(low, a.hi));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(lo, kRound));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(hi, kRound));
}

#else

struct V16 {
    float v[16];
};

#define OCTAVO_LANES(expr)                 \
    V16 r;                                   \
    for (int i = 0; i < 16; ++i) r.v[i] = (expr); \
    return r

OCTAVO_INLINE uint32_t to_bits(float x) {
    uint32_t u;
    std::memcpy(&u, &x, sizeof u);
    return u;
}
OCTAVO_INLINE float from_bits(uint32_t u) {
    float x;
    std::memcpy(&x, &u, sizeof x);
    return x;
}
OCTAVO_INLINE float f16_to_float(f16 h) {
    const uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000u) << 16;
    const uint32_t mag = static_cast<uint32_t>(h.bits & 0x7fffu) << 13;
  // Multiplying by 2^112 re-biases the exponent and makes subnormals normal; it is exact.
    const float finite = from_bits(mag) * from_bits(0x77800000u);
    const uint32_t bits = mag >= 0x0f800000u ? (mag | 0x7f800000u) : to_bits(finite);
    return from_bits(sign | bits);
}
OCTAVO_INLINE f16 float_to_f16(float x) {
    const uint32_t sign = (to_bits(x) >> 16) & 0x8000u;
    const uint32_t mag = to_bits(x) & 0x7fffffffu;
    if (mag > 0x7f800000u) {
        return {static_cast<uint16_t>(sign | 0x7e00u | ((mag >> 13) & 0x3ffu))};
    }
    if (mag > 0x477fe000u) return {static_cast<uint16_t>(sign | 0x7bffu)};  // above 65504: clamp
    if (mag < 0x38800000u) {  // below 2^-14: adding 0.5 rounds at the last bit of a subnormal f16
        const uint32_t u = to_bits(from_bits(mag) + 0.5f) - 0x3f000000u;
        return {static_cast<uint16_t>(sign | u)};
    }
    const uint32_t odd = (mag >> 13) & 1u;
    return {static_cast<uint16_t>(sign | ((mag - 0x38000000u + 0xfffu + odd) >> 13))};
}

OCTAVO_INLINE V16 set1(float x) { OCTAVO_LANES(x); }
OCTAVO_INLINE V16 zero() { return set1(0.0f); }
OCTAVO_INLINE V16 load(const float* p) { OCTAVO_LANES(p[i]); }
OCTAVO_INLINE V16 load_n(const float* p, int n) { OCTAVO_LANES(i < n ? p[i] : 0.0f); }
OCTAVO_INLINE V16 load8(const float* p) { return load_n(p, 8); }
OCTAVO_INLINE V16 load(const f16* p) { OCTAVO_LANES(f16_to_float(p[i])); }
OCTAVO_INLINE V16 load8(const f16* p) { OCTAVO_LANES(i < 8 ? f16_to_float(p[i & 7]) : 0.0f); }
OCTAVO_INLINE void store(float* p, V16 a) { std::memcpy(p, a.v, sizeof a.v); }
OCTAVO_INLINE void store_n(float* p, V16 a, int n) {
    std::memcpy(p, a.v, static_cast<size_t>(n) * sizeof(float));
}
OCTAVO_INLINE V16 add(V16 a, V16 b) { OCTAVO_LANES(a.v[i] + b.v[i]); }
OCTAVO_INLINE V16 sub(V16 a, V16 b) { OCTAVO_LANES(a.v[i] - b.v[i]); }
OCTAVO_INLINE V16 mul(V16 a, V16 b) { OCTAVO_LANES(a.v[i] * b.v[i]); }
OCTAVO_INLINE V16 div(V16 a, V16 b) { OCTAVO_LANES(a.v[i] / b.v[i]); }
OCTAVO_INLINE V16 max_(V16 a, V16 b) { OCTAVO_LANES(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
OCTAVO_INLINE V16 min_(V16 a, V16 b) { OCTAVO_LANES(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
OCTAVO_INLINE V16 fma(V16 a, V16 b, V16 c) {
#if defined(__FP_FAST_FMAF)
    OCTAVO_LANES(__builtin_fmaf(a.v[i], b.v[i], c.v[i]));
#else
    OCTAVO_LANES(a.v[i] * b.v[i] + c.v[i]);
#endif
}
OCTAVO_INLINE V16 less(V16 a, V16 b, V16 x, V16 y) { OCTAVO_LANES(a.v[i] < b.v[i] ? x.v[i] : y.v[i]); }
OCTAVO_INLINE V16 keep_n(V16 a, int n, float fill) { OCTAVO_LANES(i < n ? a.v[i] : fill); }
OCTAVO_INLINE V16 pow2_mul(V16 p, V16 t) {
    OCTAVO_LANES(from_bits(to_bits(p.v[i]) + (to_bits(t.v[i]) << 23)));
}
OCTAVO_INLINE void store_f16(f16* p, V16 a) {
    for (int i = 0; i < 16; ++i) p[i] = float_to_f16(a.v[i]);
}
#undef OCTAVO_LANES

#endif

// ---- one register -------------------------------------------------------------------------------
// For loops that count registers: a V16 is one of them, or two with AVX2.

#if OCTAVO_ISA_LEVEL == 1
struct Reg {
    __m256 v;
};
constexpr int kLanes = 8;
OCTAVO_INLINE Reg reg_zero() { return {_mm256_setzero_ps()}; }
OCTAVO_INLINE Reg reg_set1(float x) { return {_mm256_set1_ps(x)}; }
OCTAVO_INLINE Reg reg_load(const float* p) { return {_mm256_loadu_ps(p)}; }
OCTAVO_INLINE Reg reg_load(const f16* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
template <class T>
OCTAVO_INLINE Reg reg_load8(const T* p) {
    return reg_load(p);
}
OCTAVO_INLINE void store(float* p, Reg a) { _mm256_storeu_ps(p, a.v); }
OCTAVO_INLINE Reg mul(Reg a, Reg b) { return {_mm256_mul_ps(a.v, b.v)}; }
OCTAVO_INLINE Reg fma(Reg a, Reg b, Reg c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
#else
using Reg = V16;
constexpr int kLanes = 16;
OCTAVO_INLINE Reg reg_zero() { return zero(); }
OCTAVO_INLINE Reg reg_set1(float x) { return set1(x); }
template <class T>
OCTAVO_INLINE Reg reg_load(const T* p) {
    return load(p);
}
template <class T>
OCTAVO_INLINE Reg reg_load8(const T* p) {
    return load8(p);
}
#endif

// Four columns of a, b, c, d become four rows of `to`.
OCTAVO_INLINE void transpose4(const float* a, const float* b, const float* c, const float* d, float* to,
                              int64_t stride) {
#if OCTAVO_ISA_LEVEL >= 1
    __m128 r0 = _mm_loadu_ps(a), r1 = _mm_loadu_ps(b), r2 = _mm_loadu_ps(c), r3 = _mm_loadu_ps(d);
    _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
    _mm_storeu_ps(to, r0);
    _mm_storeu_ps(to + stride, r1);
    _mm_storeu_ps(to + 2 * stride, r2);
    _mm_storeu_ps(to + 3 * stride, r3);
#else
    for (int i = 0; i < 4; ++i) {
        float* row = to + i * stride;
        row[0] = a[i];
        row[1] = b[i];
        row[2] = c[i];
        row[3] = d[i];
    }
#endif
}

// ---- the same for all ---------------------------------------------------------------------------

OCTAVO_INLINE void store_as(float* p, V16 a) { store(p, a); }
OCTAVO_INLINE void store_as(f16* p, V16 a) { store_f16(p, a); }

// Sum (largest) of the lanes as a fixed tree: i with i + 8, then + 4, + 2, + 1.
#if OCTAVO_ISA_LEVEL == 2
#define OCTAVO_TREE(name, op)                                                                        \
    OCTAVO_INLINE float name(V16 a) {                                                                \
        const __m256 x8 = _mm256_##op##_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1)); \
        const __m128 x4 = _mm_##op##_ps(_mm256_castps256_ps128(x8), _mm256_extractf128_ps(x8, 1));   \
        const __m128 x2 = _mm_##op##_ps(x4, _mm_movehl_ps(x4, x4));                                  \
        return _mm_cvtss_f32(_mm_##op##_ss(x2, _mm_movehdup_ps(x2)));                                \
    }
OCTAVO_TREE(sum_lanes, add)
OCTAVO_TREE(max_lanes, max)
#undef OCTAVO_TREE
#else
OCTAVO_INLINE float sum_lanes(V16 a) {
    float x[16];
    store(x, a);
    for (int w = 8; w > 0; w /= 2) {
        for (int i = 0; i < w; ++i) x[i] += x[i + w];
    }
    return x[0];
}

OCTAVO_INLINE float max_lanes(V16 a) {
    float x[16];
    store(x, a);
    for (int w = 8; w > 0; w /= 2) {
        for (int i = 0; i < w; ++i) x[i] = x[i] > x[i + w] ? x[i] : x[i + w];
    }
    return x[0];
}
#endif

#if OCTAVO_ISA_LEVEL != 2
OCTAVO_INLINE V16 pow2_mul_above(V16 x, V16 low, V16 p, V16 t) { return less(x, low, zero(), pow2_mul(p, t)); }
#endif

// What exp_ does between its limits: n = round(x / ln 2), r = x - n ln 2 in two steps, then a minimax polynomial for
// e^r on |r| <= ln 2 / 2 (degree 6, fitted for relative error 3e-9), and n enters the exponent.
OCTAVO_INLINE V16 exp_inner(V16 c) {
    const V16 magic = set1(12582912.0f);
    const V16 t = fma(c, set1(1.44269504f), magic);
    const V16 n = sub(t, magic);
    V16 r = fma(n, set1(-0.693359375f), c);
    r = fma(n, set1(2.12194440e-4f), r);
    V16 p = set1(0x1.6a2352p-10f);
    p = fma(p, r, set1(0x1.123a6cp-7f));
    p = fma(p, r, set1(0x1.5558f4p-5f));
    p = fma(p, r, set1(0x1.555490p-3f));
    p = fma(p, r, set1(0x1.fffffcp-2f));
    p = add(fma(p, mul(r, r), r), set1(1.0f));
    return pow2_mul(p, t);
}

constexpr float kExpLowest = -87.33f, kExpHighest = 88.722f;

// e^x within about 1 unit in the last place. Zero below -87.33 (where the result would leave the
// normal numbers), infinity above 88.722, NaN for NaN.
OCTAVO_INLINE V16 exp_(V16 x) {
    const V16 lowest = set1(kExpLowest), highest = set1(kExpHighest);
    const V16 y = exp_inner(min_(highest, max_(lowest, x)));
    return less(x, lowest, zero(), less(highest, x, set1(kInf), y));
}

// 2^x within 1 unit in the last place for x of about 0 or less; zero below -125.5 (where the result would leave the normal
// numbers), NaN for NaN. 2^r on |r| <= 1/2 is a minimax polynomial (degree 6, fitted for relative error 2e-9).
OCTAVO_INLINE V16 exp2_nonpositive(V16 x) {
    const V16 magic = set1(12582912.0f);
    const V16 t = add(x, magic);
    const V16 r = sub(x, sub(t, magic));
    V16 p = set1(0x1.4177e0p-13f);
    p = fma(p, r, set1(0x1.5f0950p-10f));
    p = fma(p, r, set1(0x1.3b2dd4p-7f));
    p = fma(p, r, set1(0x1.c6af7ap-5f));
    p = fma(p, r, set1(0x1.ebfbdcp-3f));
    p = fma(p, r, set1(0x1.62e430p-1f));
    p = fma(p, r, set1(1.0f));
    return pow2_mul_above(x, set1(-125.5f), p, t);
}

OCTAVO_INLINE float exp_(float x) {
    float lanes[16];
    store(lanes, exp_(set1(x)));
    return lanes[0];
}

}  // namespace OCTAVO_ISA
}  // namespace octavo
