// The integer part of the quantised linear kernels, for *.isa.cpp files: the weights of one step for kVec outputs
// and their exact integer products with the 32 int8 of a row.
//
//   template <int Bits, bool Small> struct Integers
//       void load(const uint8_t* p, int part)      vector `part` of a panel's step
//       template <int From, int To> Vec dot(const int8_t* q, int32_t start)
//           float(start + sum of weight * q over chunks From..To of 4 weights), per output
//
// Small: 8-bit weights of at most 63, which leaves room to add products in 16 bits.
#pragma once

#include "simd_lanes.h"

namespace {

#if OCTAVO_ISA_LEVEL >= 1
inline int32_t four(const int8_t* q) {
    int32_t v;
    std::memcpy(&v, q, sizeof v);
    return v;
}
#endif

#if OCTAVO_ISA_LEVEL == 2

template <int Bits, bool Small>
struct Integers {
    __m512i w[8];

    void load(const uint8_t* p, int) {
        if constexpr (Bits == 4) {
            const __m512i mask = _mm512_set1_epi8(15);
            for (int j = 0; j < 4; ++j) {
                const __m512i v = _mm512_loadu_si512(p + 64 * j);
                w[2 * j] = _mm512_and_si512(v, mask);
                w[2 * j + 1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
            }
        } else {
            for (int j = 0; j < 8; ++j) w[j] = _mm512_loadu_si512(p + 64 * j);
        }
    }

    template <int From, int To>
    Vec dot(const int8_t* q, int32_t start) const {
        __m512i sum = _mm512_set1_epi32(start);
        for (int j = From; j < To; ++j) sum = _mm512_dpbusd_epi32(sum, w[j], _mm512_set1_epi32(four(q + 4 * j)));
        return _mm512_cvtepi32_ps(sum);
    }
};

#elif OCTAVO_ISA_LEVEL == 1

template <int Bits, bool Small>
struct Integers {
    __m256i w[8];

    void load(const uint8_t* p, int part) {
        p += 32 * part;
        if constexpr (Bits == 4) {
            const __m256i mask = _mm256_set1_epi8(15);
            for (int j = 0; j < 4; ++j) {
                const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 64 * j));
                w[2 * j] = _mm256_and_si256(v, mask);
                w[2 * j + 1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
            }
        } else {
            // Full 8-bit weights: back to signed, since unsigned * signed would overflow the 16-bit sums below.
            const __m256i flip = _mm256_set1_epi8(Small ? 0 : -128);
            for (int j = 0; j < 8; ++j) {
                const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 64 * j));
                w[j] = _mm256_xor_si256(v, flip);
            }
        }
    }

    // Largest magnitude in 16 bits: 4 bits, all eight chunks: 15 * 127 * 2 * 8 = 30480. Small, two chunks:
    // 63 * 127 * 2 * 2 = 32004. Else one chunk: 128 * 127 * 2 = 32512.
    template <int From, int To>
    Vec dot(const int8_t* q, int32_t start) const {
        constexpr int kChunks = Bits == 4 ? To - From : Small ? 2 : 1;
        const __m256i ones = _mm256_set1_epi16(1);
        // Weights made signed have lost their zero, which `start` makes up for.
        __m256i sum = _mm256_set1_epi32(Bits == 8 && !Small ? 0 : start);
        for (int j = From; j < To; j += kChunks) {
            __m256i sum16 = products(j, q);
            for (int c = 1; c < kChunks; ++c) sum16 = _mm256_add_epi16(sum16, products(j + c, q));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(sum16, ones));
        }
        return _mm256_cvtepi32_ps(sum);
    }

private:
    __m256i products(int j, const int8_t* q) const {
        const __m256i x = _mm256_set1_epi32(four(q + 4 * j));
        if constexpr (Bits == 8 && !Small) return _mm256_maddubs_epi16(_mm256_abs_epi8(w[j]), _mm256_sign_epi8(x, w[j]));
        return _mm256_maddubs_epi16(w[j], x);
    }
};

#else

template <int Bits, bool Small>
struct Integers {
    uint8_t w[8][4][kVec];  // [chunk][weight of the chunk][output]

    void load(const uint8_t* p, int) {
        for (int j = 0; j < 8; ++j) {
            for (int o = 0; o < kVec; ++o) {
                for (int b = 0; b < 4; ++b) {
                    if constexpr (Bits == 4) {
                        w[j][b][o] = static_cast<uint8_t>(p[j / 2 * 64 + o * 4 + b] >> (j % 2 * 4) & 15);
                    } else {
                        w[j][b][o] = p[j * 64 + o * 4 + b];
                    }
                }
            }
        }
    }

    template <int From, int To>
    Vec dot(const int8_t* q, int32_t start) const {
        int32_t sum[kVec];
        for (int o = 0; o < kVec; ++o) sum[o] = start;
        for (int k = From * 4; k < To * 4; ++k) {
            const auto x = static_cast<int16_t>(q[k]);
            for (int o = 0; o < kVec; ++o) sum[o] += static_cast<int16_t>(w[k / 4][k % 4][o]) * x;
        }
        return each_lane([&](int o) { return static_cast<float>(sum[o]); });
    }
};

#endif

}  // namespace
