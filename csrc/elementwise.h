// RMSNorm, SiLU gate, rotary embedding with the write into KV memory, and copies of tiles, over the threads of a context.
// Arguments as in ops/base.py; sizes that cannot be are the caller's to refuse, contents are checked here.
#pragma once

#include <cstdint>

#include "context.h"
#include "elementwise_kernels.h"
#include "kv_memory.h"

namespace octavo {

void rms_norm(Context& context, const NormTask& task, int64_t num_rows);

// gate_up [num_rows, 2 * size] -> out [num_rows, size]
void silu_mul(Context& context, const float* gate_up, int64_t num_rows, int64_t size, float* out);

// Fills in the task's fields of KV memory. Throws std::invalid_argument for a layer, position or slot
// out of range; nothing has been written then.
void rope_and_store(Context& context, RopeTask task, const KvMemory& kv, int64_t layer, int64_t num_rows,
                    int64_t num_positions);

// kv[dst[i]] = kv[src[i]] for each i, in order. Throws std::invalid_argument for a tile out of range,
// before anything is copied.
void copy_tiles(Context& context, void* kv, int64_t num_tiles, int64_t tile_bytes, const int32_t* src,
                const int32_t* dst, int64_t num_copies);

}  // namespace octavo
