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

// Vectors first .. first + V - 1 of the panels, x R rows.
template <class Weight, int R, int V>
void tile_part(const LinearTile& t, int first) {
    const int64_t panel_bytes = t.steps * kLanes * Weight::kBytes;
    Vec acc[R][V];
    for (int r = 0; r < R; ++r) {
        for (int v = 0; v < V; ++v) acc[r][v] = zero();
    }
    const uint8_t* from[V];
    for (int v = 0; v < V; ++v) {
        from[v] = t.weights + (first + v) / kVecs * panel_bytes + (first + v) % kVecs * kVec * Weight::kBytes;
    }
    const float* x = t.x;
    for (int64_t k = 0; k < t.steps; ++k, x += R) {
        Vec weights[V];
        for (int v = 0; v < V; ++v) {
            const uint8_t* p = from[v] + k * kLanes * Weight::kBytes;
            weights[v] = Weight::get(p);
            if (t.next != nullptr) prefetch(t.next + (p - t.weights));
        }
        for (int r = 0; r < R; ++r) {
            const Vec xr = splat(x[r]);
            for (int v = 0; v < V; ++v) acc[r][v] = fma(weights[v], xr, acc[r][v]);
        }
    }
    for (int v = 0; v < V; ++v) {
        const int at = (first + v) * kVec;
        const int count = t.outputs - at;
        for (int r = 0; r < R; ++r) {
            Vec sum = acc[r][v];
            if (t.bias != nullptr) sum = add(sum, load_some(t.bias + at, count));
            store_some(t.out + r * t.out_stride + at, sum, count);
        }
    }
}

// Vectors summed at a time for R rows: enough sums to hide the latency of one, and few enough for the registers.
constexpr int vectors(int rows) {
    if (OCTAVO_ISA_LEVEL == 2) return rows == 8 ? 2 : 4;
    return 8 / rows;
}

// Panels taken at once: as many as those vectors fill.
constexpr int panels(int rows) { return vectors(rows) > kVecs ? vectors(rows) / kVecs : 1; }

template <class Weight, int P, int R>
void tile(const LinearTile& t) {
    constexpr int kTotal = P * kVecs;
    constexpr int kAtOnce = vectors(R) < kTotal ? vectors(R) : kTotal;
    for (int first = 0; first < kTotal; first += kAtOnce) tile_part<Weight, R, kAtOnce>(t, first);
}

#define OCTAVO_NARROW(W) {nullptr, tile<W, 1, 8>, tile<W, 1, 4>, tile<W, 1, 2>, tile<W, 1, 1>}
#define OCTAVO_WIDE(W) \
    {nullptr, tile<W, panels(8), 8>, tile<W, panels(4), 4>, tile<W, panels(2), 2>, tile<W, panels(1), 1>}

}  // namespace

extern const LinearFloatKernels linear_float_kernels = {
    {OCTAVO_NARROW(Float32), OCTAVO_NARROW(Float16), OCTAVO_NARROW(BFloat16)},
    {OCTAVO_WIDE(Float32), OCTAVO_WIDE(Float16), OCTAVO_WIDE(BFloat16)},
    {1, panels(8), panels(4), panels(2), panels(1)},
};

}  // namespace octavo::OCTAVO_ISA
