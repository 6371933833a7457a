// A vector of float lanes and the few operations the linear kernels need, for *.isa.cpp files (see isa.h).
#pragma once

#include <cstdint>
#include <cstring>

#if OCTAVO_ISA_LEVEL >= 1
#include <immintrin.h>
#endif

namespace {  // each set has its own copy

#if OCTAVO_ISA_LEVEL == 2

constexpr int kVec = 16;
using Vec = __m512;

inline Vec zero() { return _mm512_setzero_ps(); }
inline Vec splat(float x) { return _mm512_set1_ps(x); }
inline Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline Vec load_half(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
inline Vec load_bfloat(const void* p) {
    const __m256i v = _mm256_loadu_si256(static_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}
inline Vec load_uint8(const void* p) {
    const __m128i v = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v));
}
inline Vec load_int8(const void* p) {
    const __m128i v = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v));
}

#elif OCTAVO_ISA_LEVEL == 1

constexpr int kVec = 8;
using Vec = __m256;

inline Vec zero() { return _mm256_setzero_ps(); }
inline Vec splat(float x) { return _mm256_set1_ps(x); }
inline Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
inline Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
inline Vec load_half(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
inline Vec load_bfloat(const void* p) {
    const __m128i v = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
inline Vec load_uint8(const void* p) {
    const __m128i v = _mm_loadl_epi64(static_cast<const __m128i*>(p));
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(v));
}
inline Vec load_int8(const void* p) {
    const __m128i v = _mm_loadl_epi64(static_cast<const __m128i*>(p));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v));
}

#else

constexpr int kVec = 16;
struct Vec {
    float lane[kVec];
};

template <class F>
inline Vec each_lane(F f) {
    Vec v;
    for (int i = 0; i < kVec; ++i) v.lane[i] = f(i);
    return v;
}

inline Vec splat(float x) {
    return each_lane([=](int) { return x; });
}
inline Vec zero() { return splat(0.0f); }
inline Vec mul(const Vec& a, const Vec& b) {
    return each_lane([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Vec add(const Vec& a, const Vec& b) {
    return each_lane([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Vec fma(const Vec& a, const Vec& b, const Vec& c) {  // rounds twice: there may be no fused instruction
    return each_lane([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
}
inline Vec load(const float* p) {
    Vec v;
    std::memcpy(v.lane, p, sizeof v.lane);
    return v;
}
inline void store(float* p, const Vec& v) { std::memcpy(p, v.lane, sizeof v.lane); }

inline float as_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Packed weights are finite, so infinities and NaNs need no care here.
inline float half_lane(uint16_t h) {
    const float magnitude = as_float(static_cast<uint32_t>(h & 0x7fffu) << 13) * 0x1p112f;
    return (h & 0x8000u) != 0 ? -magnitude : magnitude;
}
inline Vec load_half(const void* p) {
    uint16_t bits[kVec];
    std::memcpy(bits, p, sizeof bits);
    return each_lane([&](int i) { return half_lane(bits[i]); });
}
inline Vec load_bfloat(const void* p) {
    uint16_t bits[kVec];
    std::memcpy(bits, p, sizeof bits);
    return each_lane([&](int i) { return as_float(static_cast<uint32_t>(bits[i]) << 16); });
}
inline Vec load_uint8(const void* p) {
    return each_lane([=](int i) { return static_cast<float>(static_cast<const uint8_t*>(p)[i]); });
}
inline Vec load_int8(const void* p) {
    return each_lane([=](int i) { return static_cast<float>(static_cast<const int8_t*>(p)[i]); });
}

#endif

// Stores the first n lanes (n may exceed what there is).
inline void store_some(float* p, const Vec& v, int n) {
    if (n >= kVec) {
        store(p, v);
    } else if (n > 0) {
        float lanes[kVec];
        store(lanes, v);
        std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
    }
}

inline Vec load_some(const float* p, int n) {
    if (n >= kVec) return load(p);
    float lanes[kVec] = {};
    if (n > 0) std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
    return load(lanes);
}

}  // namespace
