// Kernels over rows: RMSNorm, SiLU gate, rotary embedding with the write into KV memory.
#pragma once

#include <cstdint>

#include "isa.h"

namespace octavo {

struct NormTask {
    const float* x;
    const float* weight;
    float* residual;  // null, or rows that x is added to, in place, before their norm is taken
    float* out;
    int64_t size;     // of a row
    float eps;
};

struct RopeTask {
    const float* qkv;        // rows of (num_heads + 2 num_kv_heads) * head_dim
    float* q_out;            // rows of num_heads * head_dim
    const int32_t* positions;
    const int32_t* slots;
    const float* cos;        // rows of num_pairs, one for each position
    const float* sin;
    const float* q_norm;     // [head_dim] or null
    const float* k_norm;
    float eps;
    int num_heads, num_kv_heads, head_dim;
    int num_pairs;           // the first 2 * num_pairs dimensions of a head turn
    bool interleaved;        // pairs (2i, 2i + 1), else (i, i + num_pairs)
    void* layer;             // keys of this layer in tile 0
    int64_t tile_stride;     // elements
    int64_t value_offset;    // elements from a layer's keys to its values
};

struct ElementwiseKernels {
    void (*rms_norm)(const NormTask& task, int64_t first_row, int64_t last_row);
    void (*silu_mul)(const float* gate, const float* up, int64_t size, float* out);
    // scratch: rope_scratch_floats.
    void (*rope_f16)(const RopeTask& task, int64_t first_row, int64_t last_row, float* scratch);
    void (*rope_f32)(const RopeTask& task, int64_t first_row, int64_t last_row, float* scratch);
};

static inline int64_t rope_scratch_floats(int head_dim) { return 3 * (static_cast<int64_t>(head_dim) + 16); }

OCTAVO_KERNEL_TABLE(ElementwiseKernels, elementwise_kernels)

}  // namespace octavo
