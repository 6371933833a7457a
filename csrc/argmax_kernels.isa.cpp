#include "argmax_kernels.h"

#if OCTAVO_ISA_LEVEL >= 1
#include <immintrin.h>
#endif

namespace octavo {
namespace OCTAVO_ISA {
namespace {

constexpr int kChains = 4;  // loops that do not wait for each other

#if OCTAVO_ISA_LEVEL == 2

constexpr int kLanes = 16;

struct Largest {
    __m512 best;
    __mmask16 nan = 0;
    explicit Largest(float x) : best(_mm512_set1_ps(x)) {}
    void take(const float* p) {
        const __m512 v = _mm512_loadu_ps(p);
        best = _mm512_max_ps(best, v);
        nan = static_cast<__mmask16>(nan | _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q));
    }
    void take(const Largest& other) {
        best = _mm512_mask_max_ps(best, 0xffff, best, other.best);  // the plain one makes GCC 12 warn
        nan = static_cast<__mmask16>(nan | other.nan);
    }
    bool any_nan() const { return nan != 0; }
    void store(float* lanes) const { _mm512_storeu_ps(lanes, best); }
};

#elif OCTAVO_ISA_LEVEL == 1

constexpr int kLanes = 8;

struct Largest {
    __m256 best, nan;
    explicit Largest(float x) : best(_mm256_set1_ps(x)), nan(_mm256_setzero_ps()) {}
    void take(const float* p) {
        const __m256 v = _mm256_loadu_ps(p);
        best = _mm256_max_ps(best, v);
        nan = _mm256_or_ps(nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    }
    void take(const Largest& other) {
        best = _mm256_max_ps(best, other.best);
        nan = _mm256_or_ps(nan, other.nan);
    }
    bool any_nan() const { return _mm256_movemask_ps(nan) != 0; }
    void store(float* lanes) const { _mm256_storeu_ps(lanes, best); }
};

#else

constexpr int kLanes = 4;

struct Largest {
    float best[kLanes];
    bool nan = false;
    explicit Largest(float x) {
        for (float& lane : best) lane = x;
    }
    void take(const float* p) {
        for (int i = 0; i < kLanes; ++i) {
            best[i] = best[i] > p[i] ? best[i] : p[i];
            nan |= p[i] != p[i];
        }
    }
    void take(const Largest& other) {
        take(other.best);
        nan |= other.nan;
    }
    bool any_nan() const { return nan; }
    void store(float* lanes) const {
        for (int i = 0; i < kLanes; ++i) lanes[i] = best[i];
    }
};

#endif

float max(const float* x, int64_t n) {
    Largest chains[kChains] = {Largest(x[0]), Largest(x[0]), Largest(x[0]), Largest(x[0])};
    int64_t i = 0;
    for (; i + kChains * kLanes <= n; i += kChains * kLanes) {
        for (int c = 0; c < kChains; ++c) chains[c].take(x + i + c * kLanes);
    }
    for (int c = 1; c < kChains; ++c) chains[0].take(chains[c]);
    float lanes[kLanes];
    chains[0].store(lanes);
    bool nan = chains[0].any_nan();
    float best = x[0];
    const auto take = [&](float v) {
        nan |= v != v;
        best = best > v ? best : v;
    };
    for (const float lane : lanes) take(lane);
    for (; i < n; ++i) take(x[i]);
    return nan ? __builtin_nanf("") : best;
}

}  // namespace

const ArgmaxKernels argmax_kernels = {max};

}  // namespace OCTAVO_ISA
}  // namespace octavo
