// A vector of float lanes and the few operations the linear kernels need, for *.isa.cpp files (see isa.h).
#pragma once

#include <cstdint>
#include <cstring>

#include "isa.h"

#if OCTAVO_X86
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

constexpr int kVec = 4;
using Vec = float __attribute__((vector_size(16)));
using Bits = uint32_t __attribute__((vector_size(16)));

inline Vec splat(float x) { return Vec{x, x, x, x}; }
inline Vec zero() { return splat(0.0f); }
inline Vec mul(Vec a, Vec b) { return a * b; }
inline Vec add(Vec a, Vec b) { return a + b; }
inline Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }  // rounds twice: there may be no fused instruction
inline Vec load(const float* p) {
    Vec v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }

inline Bits load_16_bits(const void* p) {
    uint16_t bits[kVec];
    std::memcpy(bits, p, sizeof bits);
    return Bits{bits[0], bits[1], bits[2], bits[3]};
}
// Packed weights are finite, so infinities and NaNs need no care here.
inline Vec load_half(const void* p) {
    const Bits bits = load_16_bits(p);
    const Vec magnitude = reinterpret_cast<Vec>((bits & 0x7fffu) << 13) * 0x1p112f;
    return reinterpret_cast<Vec>(reinterpret_cast<Bits>(magnitude) | (bits & 0x8000u) << 16);
}
inline Vec load_bfloat(const void* p) { return reinterpret_cast<Vec>(load_16_bits(p) << 16); }

template <class T>
inline Vec load_bytes(const void* p) {
    T v[kVec];
    std::memcpy(v, p, sizeof v);
    return Vec{static_cast<float>(v[0]), static_cast<float>(v[1]), static_cast<float>(v[2]), static_cast<float>(v[3])};
}
inline Vec load_uint8(const void* p) { return load_bytes<uint8_t>(p); }
inline Vec load_int8(const void* p) { return load_bytes<int8_t>(p); }

#endif

// Asks for the line at p, which may lie anywhere, to be in the cache soon.
inline void prefetch(const uint8_t* p) { __builtin_prefetch(p); }

// Stores the first n lanes (n may exceed what there is).
inline void store_some(float* p, Vec v, int n) {
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
