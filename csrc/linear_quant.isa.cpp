// Linear maps with quantised weights, and the quantisation of rows. Layout and order of sums: linear_kernels.h.

#include "linear_dot.h"
#include "linear_kernels.h"

namespace octavo::OCTAVO_ISA {
namespace {

// How the weights of a GGUF type are packed.
template <int BitsV, bool SmallV, int ScaleBytesV, int ScalesV, bool MinV>
struct Packed {
    static constexpr int kBits = BitsV;
    static constexpr bool kSmall = SmallV;
    static constexpr int kScaleBytes = ScaleBytesV;
    static constexpr int kScales = ScalesV;  // in a step of 32 weights
    static constexpr bool kMin = MinV;

    static constexpr int kScalesAt = kLanes * kStep * kBits / 8;
    static constexpr int kMinAt = kScalesAt + kScales * kLanes * kScaleBytes;
    static constexpr int kStepBytes = kMinAt + (kMin ? kLanes * kScaleBytes : 0);

    // The kVec numbers of vector `part` among the 16 at p.
    static Vec scales(const uint8_t* p, int part) {
        p += part * kVec * kScaleBytes;
        return kScaleBytes == 2 ? load_half(p) : load(reinterpret_cast<const float*>(p));
    }
};

using Q8_0 = Packed<8, false, 2, 1, false>;
using Q4_0 = Packed<4, true, 2, 1, false>;
using Q4_1 = Packed<4, true, 2, 1, true>;
using Q5_0 = Packed<8, true, 2, 1, false>;
using Q5_1 = Packed<8, true, 2, 1, true>;
using Q4_K = Packed<4, true, 4, 1, true>;
using Q5_K = Packed<8, true, 4, 1, true>;
using Q6_K = Packed<8, true, 4, 2, false>;

// Vector `part` of a panel (16 outputs) x R rows.
template <class P, int R>
void tile_part(const LinearTile& t, int part) {
    Vec acc[R];
    for (int r = 0; r < R; ++r) acc[r] = zero();
    const uint8_t* weights = t.weights;
    const int8_t* q = t.q;
    const float* scale = t.scale;
    const auto* start = static_cast<const int32_t*>(t.correction);
    const auto* min_scale = static_cast<const float*>(t.correction);
    for (int64_t step = 0; step < t.steps; ++step, weights += P::kStepBytes, q += R * kStep, scale += R) {
        Integers<P::kBits, P::kSmall> integers;
        integers.load(weights, part);
        const Vec first = P::scales(weights + P::kScalesAt, part);
        if constexpr (P::kMin) {
            const Vec min = P::scales(weights + P::kMinAt, part);
            for (int r = 0; r < R; ++r) {
                const Vec sum = integers.template dot<0, 8>(q + r * kStep, 0);
                acc[r] = fma(sum, mul(first, splat(scale[r])), acc[r]);
                acc[r] = fma(min, splat(min_scale[r]), acc[r]);
            }
            min_scale += R;
        } else if constexpr (P::kScales == 2) {
            const Vec second = P::scales(weights + P::kScalesAt + kLanes * P::kScaleBytes, part);
            for (int r = 0; r < R; ++r) {
                const Vec low = integers.template dot<0, 4>(q + r * kStep, start[r]);
                const Vec high = integers.template dot<4, 8>(q + r * kStep, start[R + r]);
                acc[r] = fma(low, mul(first, splat(scale[r])), acc[r]);
                acc[r] = fma(high, mul(second, splat(scale[r])), acc[r]);
            }
            start += 2 * R;
        } else {
            for (int r = 0; r < R; ++r) {
                const Vec sum = integers.template dot<0, 8>(q + r * kStep, start[r]);
                acc[r] = fma(sum, mul(first, splat(scale[r])), acc[r]);
            }
            start += R;
        }
    }
    const int at = part * kVec;
    const int n = t.outputs - at;
    for (int r = 0; r < R; ++r) {
        Vec sum = acc[r];
        if (t.bias != nullptr) sum = add(sum, load_some(t.bias + at, n));
        store_some(t.out + r * t.out_stride + at, sum, n);
    }
}

template <class P, int R>
void tile(const LinearTile& t) {
    for (int part = 0; part < kLanes / kVec; ++part) tile_part<P, R>(t, part);
}

constexpr uint32_t kInfinity = 0x7f800000u;
constexpr float kTiny = 1e-34f;  // a group below this is taken for zero: 127 / it would overflow

uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

// 32 floats -> int8 and the scale. A group with an infinity or NaN gets a NaN scale, so that it shows in the sum.
float quantize_group(const float* x, int8_t* q) {
    uint32_t largest = 0;  // magnitudes order like their bits
    for (int i = 0; i < kStep; ++i) {
        const uint32_t magnitude = bits_of(x[i]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    float amax;
    std::memcpy(&amax, &largest, sizeof amax);
    if (largest >= kInfinity || amax < kTiny) {
        std::memset(q, 0, kStep);
        return largest >= kInfinity ? amax - amax : 0.0f;
    }
    const float inverse = 127.0f / amax;
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer, ties to even
    for (int i = 0; i < kStep; ++i) {
        const float rounded = x[i] * inverse + kRound;
        q[i] = static_cast<int8_t>(static_cast<int32_t>(bits_of(rounded)) - static_cast<int32_t>(0x4b400000));
    }
    return amax / 127.0f;
}

int32_t sum16(const int8_t* q) {
    int32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += q[i];
    return sum;
}

void quantize(const float* x, int64_t stride, int rows, int64_t steps, int8_t* q, float* scale, int32_t* sums) {
    for (int r = 0; r < rows; ++r) {
        for (int64_t step = 0; step < steps; ++step) {
            int8_t* group = q + (step * rows + r) * kStep;
            scale[step * rows + r] = quantize_group(x + r * stride + step * kStep, group);
            sums[2 * step * rows + r] = sum16(group);
            sums[(2 * step + 1) * rows + r] = sum16(group + 16);
        }
    }
}

#define OCTAVO_TILES(P) {tile<P, 16>, tile<P, 8>, tile<P, 4>, tile<P, 2>, tile<P, 1>}

}  // namespace

extern const LinearQuantKernels linear_quant_kernels = {
    {OCTAVO_TILES(Q8_0), OCTAVO_TILES(Q4_0), OCTAVO_TILES(Q4_1), OCTAVO_TILES(Q5_0), OCTAVO_TILES(Q5_1),
     OCTAVO_TILES(Q4_K), OCTAVO_TILES(Q5_K), OCTAVO_TILES(Q6_K)},
    quantize,
};

}  // namespace octavo::OCTAVO_ISA
