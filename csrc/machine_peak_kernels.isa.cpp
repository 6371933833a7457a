#include "machine_peak_kernels.h"

#include <cstring>

#if OCTAVO_ISA_LEVEL >= 1
#include <immintrin.h>
#endif

namespace octavo {
namespace OCTAVO_ISA {
namespace {

// Independent chains: more than latency times throughput of any of these instructions, fewer than the registers.
constexpr int kChains = 12;

#if OCTAVO_ISA_LEVEL == 2

constexpr int kFloats = 16, kBytes = 64;
using FloatVec = __m512;
using IntVec = __m512i;
inline FloatVec splat(float x) { return _mm512_set1_ps(x); }
inline FloatVec multiply_add(FloatVec a, FloatVec b, FloatVec c) { return _mm512_fmadd_ps(a, b, c); }
inline void store(float* p, FloatVec v) { _mm512_storeu_ps(p, v); }
inline IntVec splat_byte(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
inline IntVec load(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline IntVec either(IntVec a, IntVec b) { return _mm512_xor_si512(a, b); }
inline void store(uint8_t* p, IntVec v) { _mm512_storeu_si512(p, v); }
inline IntVec dot(IntVec sums, IntVec a, IntVec b) { return _mm512_dpbusd_epi32(sums, a, b); }
inline void hide(IntVec& v) { asm volatile("" : "+v"(v)); }
constexpr const char* kDotName = "vpdpbusd, 512 bits";

#elif OCTAVO_ISA_LEVEL == 1

constexpr int kFloats = 8, kBytes = 32;
using FloatVec = __m256;
using IntVec = __m256i;
inline FloatVec splat(float x) { return _mm256_set1_ps(x); }
inline FloatVec multiply_add(FloatVec a, FloatVec b, FloatVec c) { return _mm256_fmadd_ps(a, b, c); }
inline void store(float* p, FloatVec v) { _mm256_storeu_ps(p, v); }
inline IntVec splat_byte(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
inline IntVec load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline IntVec either(IntVec a, IntVec b) { return _mm256_xor_si256(a, b); }
inline void store(uint8_t* p, IntVec v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
inline IntVec dot(IntVec sums, IntVec a, IntVec b) { return _mm256_add_epi16(sums, _mm256_maddubs_epi16(a, b)); }
inline void hide(IntVec& v) { asm volatile("" : "+x"(v)); }
constexpr const char* kDotName = "vpmaddubsw with 16-bit sums, 256 bits";

#else

constexpr int kFloats = 8, kBytes = 16;
struct FloatVec {
    float lane[kFloats];
};
struct IntVec {
    uint8_t lane[kBytes];
};
inline FloatVec splat(float x) {
    FloatVec v;
    for (float& lane : v.lane) lane = x;
    return v;
}
inline FloatVec multiply_add(const FloatVec& a, const FloatVec& b, const FloatVec& c) {
    FloatVec v;
    for (int i = 0; i < kFloats; ++i) v.lane[i] = a.lane[i] * b.lane[i] + c.lane[i];
    return v;
}
inline void store(float* p, const FloatVec& v) { std::memcpy(p, v.lane, sizeof v.lane); }
inline IntVec splat_byte(int x) {
    IntVec v;
    std::memset(v.lane, x, sizeof v.lane);
    return v;
}
inline IntVec load(const uint8_t* p) {
    IntVec v;
    std::memcpy(v.lane, p, sizeof v.lane);
    return v;
}
inline IntVec either(const IntVec& a, const IntVec& b) {
    IntVec v;
    for (int i = 0; i < kBytes; ++i) v.lane[i] = a.lane[i] ^ b.lane[i];
    return v;
}
inline void store(uint8_t* p, const IntVec& v) { std::memcpy(p, v.lane, sizeof v.lane); }
inline void hide(IntVec& v) { asm volatile("" : "+m"(v)); }
constexpr const char* kDotName = "16-bit products with 32-bit sums";

#endif

uint64_t read(const uint8_t* data, int64_t bytes) {
    IntVec sums[4] = {splat_byte(0), splat_byte(0), splat_byte(0), splat_byte(0)};
    for (int64_t at = 0; at < bytes; at += 4 * kBytes) {
        for (int i = 0; i < 4; ++i) sums[i] = either(sums[i], load(data + at + i * kBytes));
    }
    uint8_t out[kBytes];
    store(out, either(either(sums[0], sums[1]), either(sums[2], sums[3])));
    uint64_t sum = 0;
    for (const uint8_t byte : out) sum = sum * 31 + byte;
    return sum;
}

float fma(int64_t rounds, float factor) {
    FloatVec sums[kChains];
    for (int i = 0; i < kChains; ++i) sums[i] = splat(static_cast<float>(i));
    const FloatVec a = splat(factor), b = splat(1.0f);
    for (int64_t r = 0; r < rounds; ++r) {
        for (FloatVec& sum : sums) sum = multiply_add(sum, a, b);
    }
    float total = 0.0f;
    for (const FloatVec& sum : sums) {
        float out[kFloats];
        store(out, sum);
        for (const float x : out) total += x;
    }
    return total;
}

#if OCTAVO_ISA_LEVEL >= 1

constexpr int64_t kDotOps = 2 * kBytes * kChains;

int32_t dot(int64_t rounds, int32_t seed) {
    IntVec sums[kChains];
    for (IntVec& sum : sums) sum = splat_byte(0);
    IntVec a = splat_byte(seed & 15);
    const IntVec b = splat_byte(3);
    for (int64_t r = 0; r < rounds; ++r) {
        hide(a);  // or its product would be taken out of the loop
        for (IntVec& sum : sums) sum = dot(sum, a, b);
    }
    int32_t total = 0;
    for (const IntVec& sum : sums) {
        uint8_t out[kBytes];
        store(out, sum);
        for (const uint8_t x : out) total += x;
    }
    return total;
}

#else

constexpr int64_t kDotOps = 2 * 1024;

int32_t dot(int64_t rounds, int32_t seed) {
    int16_t a[1024], b[1024];
    for (int i = 0; i < 1024; ++i) {
        a[i] = static_cast<int16_t>((seed + i) & 15);
        b[i] = static_cast<int16_t>(i % 7 - 3);
    }
    int32_t total = 0;
    for (int64_t r = 0; r < rounds; ++r) {
        asm volatile("" : : "r"(a), "r"(b) : "memory");
        int32_t sum = 0;
        for (int i = 0; i < 1024; ++i) sum += static_cast<int32_t>(a[i]) * b[i];
        total ^= sum;
    }
    return total;
}

#endif

}  // namespace

extern const PeakKernels peak_kernels = {read, fma, int64_t{2} * kFloats * kChains, dot, kDotOps, kDotName};

}  // namespace OCTAVO_ISA
}  // namespace octavo
