// The inner kernels of linear maps: one panel of 16 outputs times one tile of rows.
//
// Weights are packed into panels of 16 outputs, one output in each vector lane, so that a sum over K needs no
// horizontal step and runs in the same order whatever the number of rows:
//   quantised: a panel is K/32 steps, one after the other. A step is the integers of 32 weights of each output,
//     as many bits as the type has, then their scales and minima.
//       8 bits: 8 x 64 bytes; in the j-th, bytes 4o .. 4o+3 are weights 4j .. 4j+3 of output o
//       4 bits: 4 x 64 bytes; in the j-th, the low halves of bytes 4o .. 4o+3 are weights 8j .. 8j+3
//         of output o, the high halves weights 8j+4 .. 8j+7
//       5 bits: as 4 bits, then 64 bytes whose bits j are the fifth bits of the weights 4j .. 4j+3
//       6 bits: as 4 bits, then 2 x 64 bytes; in the i-th, bits 2p, 2p+1 belong to the weights 4j .. 4j+3, j = 4i + p
//       scales and minima: 16 x float16 each. K formats: 16 x uint8 each (Q6_K: scales, int8, for weights 0 .. 15,
//         then for 16 .. 31), to be multiplied by what stands before each 8 steps: 16 x float16 for the
//         scales and, but for Q6_K, 16 x float16 for the minima, their sign turned.
//   float: [K][16].
//
// Rows are quantised per group of 32 (scale = largest magnitude / 127) and laid out in tiles of R rows,
// R in kRowTiles, so that a kernel reads them front to back:
//   q int8 [K/32][R][32]; scale float32 [K/32][R]; correction 4 bytes [K/32][1 or 2][R]; float rows: [K][R].
// The correction belongs to the weights' type. Weights with minima: float32, scale * sum(q), to be multiplied by the
// minimum. Others: int32, -zero * sum(q) over the weights of a scale: the integer sum starts from it.
//
// The sum of an output, for step = 0, 1, ...:
//   acc = fma(float(integer sum), weight scale * row scale, acc)      (twice for 16-weight scales)
//   acc = fma(minimum, correction, acc)                               (weights with minima)
// and last, + bias. Float weights: acc = fma(weight, x, acc) for k = 0, 1, ... (The portable set rounds the product.)
#pragma once

#include <cstdint>

#include "isa.h"

namespace octavo {

constexpr int kLanes = 16;
constexpr int kStep = 32;
constexpr int kHeaderSteps = 8;

constexpr int kRowTiles[] = {16, 8, 4, 2, 1};
constexpr int kNumRowTiles = 5;
constexpr int kMaxRows = 16;
constexpr int kFirstFloatTile = 1;  // float rows use tiles of 8 and less

constexpr int kNumQuantTypes = 8;  // WeightType Q8_0 .. Q6_K
constexpr int kNumFloatTypes = 3;  // F32, F16, BF16

// One panel or a few neighbouring ones times one tile of rows.
struct LinearTile {
    const uint8_t* weights;
    const uint8_t* next;  // weights to fetch into the cache meanwhile, or null
    int64_t steps;  // K/32 (quantised) or K (float)
    const int8_t* q;
    const float* scale;
    const void* correction;
    const float* x;        // float weights: the rows
    float* out;            // row 0, first output
    int64_t out_stride;    // floats
    int outputs;           // outputs to store: panels * 16, or less for the last
    const float* bias;     // for the first output, or null
};

using LinearTileFn = void (*)(const LinearTile&);

// `rows` rows of x, starting at x with `stride` floats between them, as one tile of that many rows.
// sums: int32 [K/32][2][R], of the first and last 16 q of a group.
using QuantizeFn = void (*)(const float* x, int64_t stride, int rows, int64_t steps, int8_t* q, float* scale,
                            int32_t* sums);

struct LinearQuantKernels {
    LinearTileFn tile[kNumQuantTypes][kNumRowTiles];  // one panel
    LinearTileFn wide[kNumQuantTypes][kNumRowTiles];  // `wide_panels` neighbouring panels
    int wide_panels;
    QuantizeFn quantize;
};

struct LinearFloatKernels {
    LinearTileFn tile[kNumFloatTypes][kNumRowTiles];  // one panel
    LinearTileFn wide[kNumFloatTypes][kNumRowTiles];  // `wide_panels` neighbouring panels
    int wide_panels[kNumRowTiles];
};

OCTAVO_KERNEL_TABLE(LinearQuantKernels, linear_quant_kernels)
OCTAVO_KERNEL_TABLE(LinearFloatKernels, linear_float_kernels)

}  // namespace octavo
