// The one RMS of a row, for the norm kernel and for the head norms of the rotary kernel. For *.isa.cpp files.
#pragma once

#include <cstdint>

#include "vec16.h"

namespace octavo {
namespace OCTAVO_ISA {

// 1 / sqrt(mean(x^2) + eps). Four running sums of 16 lanes take the vectors in turn; they are added as a fixed tree.
OCTAVO_INLINE float inverse_rms(const float* x, int64_t n, float eps) {
    V16 sums[4] = {zero(), zero(), zero(), zero()};
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        for (int k = 0; k < 4; ++k) {
            const V16 v = load(x + i + k * 16);
            sums[k] = fma(v, v, sums[k]);
        }
    }
    for (int k = 0; i < n; ++k, i += 16) {
        const V16 v = n - i >= 16 ? load(x + i) : load_n(x + i, static_cast<int>(n - i));
        sums[k] = fma(v, v, sums[k]);
    }
    const float total = sum_lanes(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
    return 1.0f / __builtin_sqrtf(total / static_cast<float>(n) + eps);
}

// out = x * inverse * weight; out may be x.
OCTAVO_INLINE void scale_row(const float* x, const float* weight, float inverse, int64_t n, float* out) {
    const V16 by = set1(inverse);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) store(out + i, mul(mul(load(x + i), by), load(weight + i)));
    if (i < n) {
        const int left = static_cast<int>(n - i);
        store_n(out + i, mul(mul(load_n(x + i, left), by), load_n(weight + i, left)), left);
    }
}

}  // namespace OCTAVO_ISA
}  // namespace octavo
