// The integer part of the quantised linear kernels, for *.isa.cpp files: the weights of one step for kVec outputs
// and their exact integer products with the 32 int8 of a row.
//
//   template <int Bits> struct Integers
//       void load(const uint8_t* p, int part)      vector `part` of a panel's step, Bits = 4, 5, 6 or 8
//       template <int From, int To> Vec dot(const int8_t* q, int32_t start)
//           float(start + sum of weight * q over chunks From..To of 4 weights), per output
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

template <int Bits>
struct Integers {
    __m512i w[8];

    void load(const uint8_t* p, int) {
        if constexpr (Bits == 8) {
            for (int j = 0; j < 8; ++j) w[j] = _mm512_loadu_si512(p + 64 * j);
            return;
        }
        const __m512i mask = _mm512_set1_epi8(15);
        for (int j = 0; j < 4; ++j) {
            const __m512i v = _mm512_loadu_si512(p + 64 * j);
            w[2 * j] = _mm512_and_si512(v, mask);
            w[2 * j + 1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
        }
        if constexpr (Bits > 4) {
            constexpr int kExtra = Bits - 4, kShared = 8 / kExtra;
            const __m512i upper = _mm512_set1_epi8(Bits == 5 ? 0x10 : 0x30);
            for (int j = 0; j < 8; ++j) {
                const __m512i v = _mm512_loadu_si512(p + 64 * (4 + j / kShared));
                const int shift = 4 - j % kShared * kExtra;
                const __m512i moved = shift >= 0 ? _mm512_slli_epi16(v, static_cast<unsigned>(shift))
                                                 : _mm512_srli_epi16(v, static_cast<unsigned>(-shift));
                w[j] = _mm512_or_si512(w[j], _mm512_and_si512(moved, upper));
            }
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

template <int Bits>
struct Integers {
    __m256i w[8];

    void load(const uint8_t* p, int part) {
        const auto vector = [p, part](int i) {
            return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 64 * i + 32 * part));
        };
        if constexpr (Bits == 8) {
            // Back to signed: unsigned 8 bits * signed 8 bits would overflow the 16-bit sums below.
            for (int j = 0; j < 8; ++j) w[j] = _mm256_xor_si256(vector(j), _mm256_set1_epi8(-128));
            return;
        }
        const __m256i mask = _mm256_set1_epi8(15);
        for (int j = 0; j < 4; ++j) {
            w[2 * j] = _mm256_and_si256(vector(j), mask);
            w[2 * j + 1] = _mm256_and_si256(_mm256_srli_epi16(vector(j), 4), mask);
        }
        if constexpr (Bits > 4) {
            constexpr int kExtra = Bits - 4, kShared = 8 / kExtra;
            const __m256i upper = _mm256_set1_epi8(Bits == 5 ? 0x10 : 0x30);
            for (int j = 0; j < 8; ++j) {
                const __m256i v = vector(4 + j / kShared);
                const int shift = 4 - j % kShared * kExtra;
                const __m256i moved = shift >= 0 ? _mm256_slli_epi16(v, shift) : _mm256_srli_epi16(v, -shift);
                w[j] = _mm256_or_si256(w[j], _mm256_and_si256(moved, upper));
            }
        }
    }

    // Chunks whose products fit into 16 bits together: 4 bits, 15 * 127 * 2 * 8 = 30480; 5 bits, 31 * 127 * 2 * 4 =
    // 31496; 6 bits, 63 * 127 * 2 * 2 = 32004; 8 bits, 128 * 127 * 2 = 32512.
    template <int From, int To>
    Vec dot(const int8_t* q, int32_t start) const {
        constexpr int kFit = Bits == 4 ? 8 : Bits == 5 ? 4 : Bits == 6 ? 2 : 1;
        constexpr int kChunks = kFit < To - From ? kFit : To - From;
        const __m256i ones = _mm256_set1_epi16(1);
        // Weights made signed have lost their zero, which `start` makes up for.
        __m256i sum = _mm256_set1_epi32(Bits == 8 ? 0 : start);
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
        if constexpr (Bits == 8) return _mm256_maddubs_epi16(_mm256_abs_epi8(w[j]), _mm256_sign_epi8(x, w[j]));
        return _mm256_maddubs_epi16(w[j], x);
    }
};

#else

template <int Bits>
struct Integers {
    uint8_t w[8][4 * kVec];  // [chunk][output][weight of the chunk]

    void load(const uint8_t* p, int part) {
        p += 4 * kVec * part;
        if constexpr (Bits == 8) {
            for (int j = 0; j < 8; ++j) std::memcpy(w[j], p + 64 * j, sizeof w[j]);
            return;
        }
        for (int j = 0; j < 4; ++j) {
            for (int i = 0; i < 4 * kVec; ++i) w[2 * j][i] = p[64 * j + i] & 15;
            for (int i = 0; i < 4 * kVec; ++i) w[2 * j + 1][i] = p[64 * j + i] >> 4;
        }
        if constexpr (Bits > 4) {
            constexpr int kExtra = Bits - 4, kShared = 8 / kExtra;
            for (int j = 0; j < 8; ++j) {
                constexpr uint64_t kMask = (Bits == 5 ? 0x01 : 0x03) * 0x0101010101010101u;
                for (int i = 0; i < 4 * kVec; i += 8) {
                    uint64_t upper, lower;
                    std::memcpy(&upper, p + 64 * (4 + j / kShared) + i, sizeof upper);
                    std::memcpy(&lower, w[j] + i, sizeof lower);
                    lower |= (upper >> (j % kShared * kExtra) & kMask) << 4;
                    std::memcpy(w[j] + i, &lower, sizeof lower);
                }
            }
        }
    }

    template <int From, int To>
    Vec dot(const int8_t* q, int32_t start) const;
};

#if OCTAVO_X86  // SSE2, which every 64-bit x86 has

template <int Bits>
template <int From, int To>
Vec Integers<Bits>::dot(const int8_t* q, int32_t start) const {
    const __m128i zeros = _mm_setzero_si128();
    __m128i low = zeros, high = zeros;  // two sums for each of outputs 0, 1 and 2, 3
    for (int j = From; j < To; ++j) {
        int32_t four;
        std::memcpy(&four, q + 4 * j, sizeof four);
        const __m128i bytes = _mm_set1_epi32(four);
        const __m128i x = _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
        const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w[j]));
        low = _mm_add_epi32(low, _mm_madd_epi16(_mm_unpacklo_epi8(v, zeros), x));
        high = _mm_add_epi32(high, _mm_madd_epi16(_mm_unpackhi_epi8(v, zeros), x));
    }
    const __m128 a = _mm_castsi128_ps(low), b = _mm_castsi128_ps(high);
    const __m128i even = _mm_castps_si128(_mm_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)));
    const __m128i odd = _mm_castps_si128(_mm_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1)));
    return _mm_cvtepi32_ps(_mm_add_epi32(_mm_add_epi32(even, odd), _mm_set1_epi32(start)));
}

#else

template <int Bits>
template <int From, int To>
Vec Integers<Bits>::dot(const int8_t* q, int32_t start) const {
    int32_t sum[kVec] = {start, start, start, start};
    for (int j = From; j < To; ++j) {
        for (int o = 0; o < kVec; ++o) {
            for (int b = 0; b < 4; ++b) sum[o] += static_cast<int16_t>(w[j][4 * o + b]) * q[4 * j + b];
        }
    }
    return Vec{static_cast<float>(sum[0]), static_cast<float>(sum[1]), static_cast<float>(sum[2]),
               static_cast<float>(sum[3])};
}

#endif

#endif

}  // namespace
