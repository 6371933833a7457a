// Linear maps with quantised weights, and the quantisation of rows. Layout and order of sums: linear_kernels.h.

#include "linear_dot.h"
#include "linear_kernels.h"
#include "linear_quantize.h"

namespace octavo::OCTAVO_ISA {
namespace {

// How the weights of a GGUF type are packed.
template <int BitsV, bool KFormatV, int ScalesV, bool MinV>
struct Packed {
    static constexpr int kBits = BitsV;
    static constexpr bool kKFormat = KFormatV;
    static constexpr int kScales = ScalesV;  // in a step of 32 weights
    static constexpr bool kMin = MinV;

    static constexpr int kScalesAt = kLanes * kStep * kBits / 8;
    static constexpr int kScalesBytes = kLanes * (kKFormat ? 1 : 2);
    static constexpr int kStepBytes = kScalesAt + (kScales + kMin) * kScalesBytes;
    static constexpr int kHeaderBytes = kKFormat ? (1 + kMin) * kLanes * 2 : 0;
};

using Q8_0 = Packed<8, false, 1, false>;
using Q4_0 = Packed<4, false, 1, false>;
using Q4_1 = Packed<4, false, 1, true>;
using Q5_0 = Packed<5, false, 1, false>;
using Q5_1 = Packed<5, false, 1, true>;
using Q4_K = Packed<4, true, 1, true>;
using Q5_K = Packed<5, true, 1, true>;
using Q6_K = Packed<6, true, 2, false>;

// What a K format multiplies the scales and minima of 8 steps by, for vector `part` of a panel.
template <class P>
struct Header {
    Vec scale = zero(), min = zero();

    void load(const uint8_t* p, int part) {
        if constexpr (P::kKFormat) {
            scale = load_half(p + 2 * kVec * part);
            if constexpr (P::kMin) min = load_half(p + 2 * kLanes + 2 * kVec * part);
        }
    }
};

// The weights of a step for vector `part` of a panel, in registers as far as they go.
template <class P>
struct Step {
    Integers<P::kBits> integers;
    Vec scales[P::kScales];
    Vec min;

    void load(const uint8_t* p, int part, const Header<P>& header) {
        integers.load(p, part);
        p += P::kScalesAt + P::kScalesBytes / kLanes * kVec * part;
        for (int i = 0; i < P::kScales; ++i, p += P::kScalesBytes) {
            if constexpr (!P::kKFormat) {
                scales[i] = load_half(p);
            } else {
                scales[i] = mul(header.scale, P::kMin ? load_uint8(p) : load_int8(p));
            }
        }
        if constexpr (P::kMin && P::kKFormat) {
            min = mul(header.min, load_uint8(p));
        } else if constexpr (P::kMin) {
            min = load_half(p);
        }
    }

    // acc + this step of one row; `correction` of the first group, `stride` elements before that of the second.
    Vec add_to(Vec acc, const int8_t* q, float scale, const uint8_t* correction, int stride) const {
        if constexpr (P::kMin) {
            const Vec sum = integers.template dot<0, 8>(q, 0);
            acc = fma(sum, mul(scales[0], splat(scale)), acc);
            return fma(min, splat(float_at(correction)), acc);
        } else if constexpr (P::kScales == 2) {
            const Vec low = integers.template dot<0, 4>(q, int_at(correction));
            const Vec high = integers.template dot<4, 8>(q, int_at(correction + 4 * stride));
            acc = fma(low, mul(scales[0], splat(scale)), acc);
            return fma(high, mul(scales[1], splat(scale)), acc);
        } else {
            const Vec sum = integers.template dot<0, 8>(q, int_at(correction));
            return fma(sum, mul(scales[0], splat(scale)), acc);
        }
    }

private:
    static float float_at(const uint8_t* p) {
        float v;
        std::memcpy(&v, p, sizeof v);
        return v;
    }
    static int32_t int_at(const uint8_t* p) {
        int32_t v;
        std::memcpy(&v, p, sizeof v);
        return v;
    }
};

// N neighbouring panels x R rows; of each panel only vector `part`.
template <class P, int N, int R>
void tile_part(const LinearTile& t, int part) {
    const int64_t panel_bytes = t.steps * P::kStepBytes + t.steps / kHeaderSteps * P::kHeaderBytes;
    Vec acc[R][N];
    for (int r = 0; r < R; ++r) {
        for (int n = 0; n < N; ++n) acc[r][n] = zero();
    }
    const int8_t* q = t.q;
    const float* scale = t.scale;
    const auto* correction = static_cast<const uint8_t*>(t.correction);
    Header<P> headers[N];
    int64_t at = 0;  // in a panel
    for (int64_t step = 0; step < t.steps; ++step, at += P::kStepBytes) {
        if (P::kKFormat && step % kHeaderSteps == 0) {
            for (int n = 0; n < N; ++n) headers[n].load(t.weights + n * panel_bytes + at, part);
            at += P::kHeaderBytes;
        }
        Step<P> weights[N];
        for (int n = 0; n < N; ++n) {
            weights[n].load(t.weights + n * panel_bytes + at, part, headers[n]);
            if (t.next != nullptr) {
                for (int i = 0; i < P::kStepBytes; i += 64) prefetch(t.next + n * panel_bytes + at + i);
            }
        }
        for (int r = 0; r < R; ++r) {
            for (int n = 0; n < N; ++n) {
                acc[r][n] = weights[n].add_to(acc[r][n], q + r * kStep, scale[r], correction + 4 * r, R);
            }
        }
        q += R * kStep;
        scale += R;
        correction += 4 * R * P::kScales;
    }
    for (int n = 0; n < N; ++n) {
        const int at = n * kLanes + part * kVec;
        const int count = t.outputs - at;
        for (int r = 0; r < R; ++r) {
            Vec sum = acc[r][n];
            if (t.bias != nullptr) sum = add(sum, load_some(t.bias + at, count));
            store_some(t.out + r * t.out_stride + at, sum, count);
        }
    }
}

template <class P, int N, int R>
void tile(const LinearTile& t) {
    for (int part = 0; part < kLanes / kVec; ++part) tile_part<P, N, R>(t, part);
}

void quantize(const float* x, int64_t stride, int rows, int64_t steps, int8_t* q, float* scale, int32_t* sums) {
    for (int r = 0; r < rows; ++r) {
        for (int64_t step = 0; step < steps; ++step) {
            int8_t* group = q + (step * rows + r) * kStep;
            const GroupOfRow g = quantize_group(x + r * stride + step * kStep, group);
            scale[step * rows + r] = g.scale;
            sums[2 * step * rows + r] = g.low;
            sums[(2 * step + 1) * rows + r] = g.high;
        }
    }
}

// Two panels share what is loaded of a row, where the registers hold the weights of both.
constexpr int kWide = OCTAVO_ISA_LEVEL == 2 ? 2 : 1;

#define OCTAVO_TILES(P, N) {tile<P, N, 16>, tile<P, N, 8>, tile<P, N, 4>, tile<P, N, 2>, tile<P, N, 1>}
#define OCTAVO_TYPES(N)                                                                                      \
    {OCTAVO_TILES(Q8_0, N), OCTAVO_TILES(Q4_0, N), OCTAVO_TILES(Q4_1, N), OCTAVO_TILES(Q5_0, N), \
     OCTAVO_TILES(Q5_1, N), OCTAVO_TILES(Q4_K, N), OCTAVO_TILES(Q5_K, N), OCTAVO_TILES(Q6_K, N)}

}  // namespace

extern const LinearQuantKernels linear_quant_kernels = {
    OCTAVO_TYPES(1),
    OCTAVO_TYPES(kWide),
    kWide,
    quantize,
};

}  // namespace octavo::OCTAVO_ISA
