// The quantisation of 32 floats of a row, for *.isa.cpp files. The same bits from every instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#include "isa.h"

#if OCTAVO_X86
#include <immintrin.h>
#endif

namespace {

constexpr uint32_t kInfinity = 0x7f800000u;
constexpr float kTiny = 1e-34f;  // a group below this is taken for zero: 127 / it would overflow

struct GroupOfRow {
    float scale;
    int32_t low, high;  // sums of the first and last 16 q
};

// A group with an infinity or NaN gets a NaN scale, so that it shows in the sum.
inline GroupOfRow zero_group(uint32_t largest, float amax, int8_t* q) {
    std::memset(q, 0, 32);
    return {largest >= kInfinity ? amax - amax : 0.0f, 0, 0};
}

inline float float_of(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

#if OCTAVO_ISA_LEVEL >= 1

// Stores q and sums it.
inline GroupOfRow store_group(__m256i q, float scale, int8_t* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), q);
    // Sums of 8 unsigned bytes each: q + 128.
    const __m256i sums = _mm256_sad_epu8(_mm256_xor_si256(q, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
    const __m128i low = _mm256_castsi256_si128(sums), high = _mm256_extracti128_si256(sums, 1);
    const auto both = [](__m128i v) {
        return _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_unpackhi_epi64(v, v))) - 16 * 128;
    };
    return {scale, both(low), both(high)};
}

inline uint32_t largest_of(__m256i v) {
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

#endif

// 32 floats -> int8, scale = largest magnitude / 127, rounded to the nearest, ties to even.
#if OCTAVO_ISA_LEVEL == 2

inline GroupOfRow quantize_group(const float* x, int8_t* q) {
    const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    const __m512i sign = _mm512_set1_epi32(0x7fffffff);
    // Magnitudes order like their bits.
    const __m512i most = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), sign),
                                          _mm512_and_si512(_mm512_castps_si512(b), sign));
    const uint32_t largest =
        largest_of(_mm256_max_epu32(_mm512_castsi512_si256(most), _mm512_extracti64x4_epi64(most, 1)));
    const float amax = float_of(largest);
    if (largest >= kInfinity || amax < kTiny) return zero_group(largest, amax, q);
    const __m512 inverse = _mm512_set1_ps(127.0f / amax);
    const __m128i low = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)));
    const __m128i high = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)));
    return store_group(_mm256_set_m128i(high, low), amax / 127.0f, q);
}

#elif OCTAVO_ISA_LEVEL == 1

inline GroupOfRow quantize_group(const float* x, int8_t* q) {
    __m256 v[4];
    __m256i most = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        // Magnitudes order like their bits.
        most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(v[i]), _mm256_set1_epi32(0x7fffffff)));
    }
    const uint32_t largest = largest_of(most);
    const float amax = float_of(largest);
    if (largest >= kInfinity || amax < kTiny) return zero_group(largest, amax, q);
    const __m256 inverse = _mm256_set1_ps(127.0f / amax);
    __m256i rounded[4];
    for (int i = 0; i < 4; ++i) rounded[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    // Packing works on 128-bit halves: blocks of 4 come out in the order 0 2 4 6 1 3 5 7.
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(rounded[0], rounded[1]),
                                              _mm256_packs_epi32(rounded[2], rounded[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return store_group(_mm256_permutevar8x32_epi32(packed, order), amax / 127.0f, q);
}

#else

inline uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline int32_t sum16(const int8_t* q) {
    int32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += q[i];
    return sum;
}

inline GroupOfRow quantize_group(const float* x, int8_t* q) {
    uint32_t largest = 0;  // magnitudes order like their bits
    for (int i = 0; i < 32; ++i) {
        const uint32_t magnitude = bits_of(x[i]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    const float amax = float_of(largest);
    if (largest >= kInfinity || amax < kTiny) return zero_group(largest, amax, q);
    const float inverse = 127.0f / amax;
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer, ties to even
    for (int i = 0; i < 32; ++i) {
        const float rounded = x[i] * inverse + kRound;
        q[i] = static_cast<int8_t>(static_cast<int32_t>(bits_of(rounded)) - static_cast<int32_t>(0x4b400000));
    }
    return {amax / 127.0f, sum16(q), sum16(q + 16)};
}

#endif

}  // namespace
