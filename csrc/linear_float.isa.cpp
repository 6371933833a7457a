// Linear maps with float32, float16 and bfloat16 weights. Layout and order of sums: linear_kernels.h.

#include "linear_kernels.h"
#include "simd_lanes.h"

namespace octavo::OCTAVO_ISA {
namespace {

struct Float32 {
    static constexpr int kBytes = 4;
    static Vec get(const uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
};
struct Float16 {
    static constexpr int kBytes = 2;
    static Vec get(const uint8_t* p) { return load_half(p); }
};
struct BFloat16 {
    static constexpr int kBytes = 2;
    static Vec get(const uint8_t* p) { return load_bfloat(p); }
};

constexpr int kVecs = kLanes / kVec;  // vectors in a panel

// P panels x R rows; V = P * kVecs vectors of outputs.
template <class Weight, int P, int R>
void tile(const LinearTile& t) {
    constexpr int V = P * kVecs;
    const int64_t panel_bytes = t.steps * kLanes * Weight::kBytes;
    Vec acc[R][V];
    for (int r = 0; r < R; ++r) {
        for (int v = 0; v < V; ++v) acc[r][v] = zero();
    }
    const uint8_t* w = t.weights;
    const float* x = t.x;
    for (int64_t k = 0; k < t.steps; ++k, w += kLanes * Weight::kBytes, x += R) {
        Vec weights[V];
        for (int v = 0; v < V; ++v) {
            weights[v] = Weight::get(w + v / kVecs * panel_bytes + v % kVecs * kVec * Weight::kBytes);
        }
        for (int r = 0; r < R; ++r) {
            const Vec xr = splat(x[r]);
            for (int v = 0; v < V; ++v) acc[r][v] = fma(weights[v], xr, acc[r][v]);
        }
    }
    for (int v = 0; v < V; ++v) {
        const int n = t.outputs - v * kVec;
        for (int r = 0; r < R; ++r) {
            Vec sum = acc[r][v];
            if (t.bias != nullptr) sum = add(sum, load_some(t.bias + v * kVec, n));
            store_some(t.out + r * t.out_stride + v * kVec, sum, n);
        }
    }
}

// Enough sums at a time to hide the latency of one, and few enough for the registers.
#if OCTAVO_ISA_LEVEL == 2
constexpr int kPanels1 = 4, kPanels2 = 4, kPanels4 = 4, kPanels8 = 2;
#elif OCTAVO_ISA_LEVEL == 1
constexpr int kPanels1 = 4, kPanels2 = 2, kPanels4 = 1, kPanels8 = 1;
#else
constexpr int kPanels1 = 1, kPanels2 = 1, kPanels4 = 1, kPanels8 = 1;
#endif

#define OCTAVO_NARROW(W) {nullptr, tile<W, 1, 8>, tile<W, 1, 4>, tile<W, 1, 2>, tile<W, 1, 1>}
#define OCTAVO_WIDE(W) \
    {nullptr, tile<W, kPanels8, 8>, tile<W, kPanels4, 4>, tile<W, kPanels2, 2>, tile<W, kPanels1, 1>}

}  // namespace

extern const LinearFloatKernels linear_float_kernels = {
    {OCTAVO_NARROW(Float32), OCTAVO_NARROW(Float16), OCTAVO_NARROW(BFloat16)},
    {OCTAVO_WIDE(Float32), OCTAVO_WIDE(Float16), OCTAVO_WIDE(BFloat16)},
    {1, kPanels8, kPanels4, kPanels2, kPanels1},
};

}  // namespace octavo::OCTAVO_ISA
