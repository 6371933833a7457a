// Rows of an embedding table, straight from the bytes of its file.
#pragma once

#include <cstdint>

#include "thread_pool.h"
#include "weight_types.h"

namespace octavo {

// Rows ids[0 .. num_ids - 1] of table [num_rows, k] as floats, out [num_ids, k].
// Throws std::out_of_range for an id outside the table, before anything is written.
void look_up(WeightType type, const uint8_t* table, int64_t num_rows, int64_t k, const int32_t* ids, int64_t num_ids,
             float* out, ThreadPool& pool);

}  // namespace octavo
