// Float weights -> GGUF's 8-bit and 4-bit groups of 32, as its reference quantiser rounds them.
#pragma once

#include <cstdint>

#include "thread_pool.h"
#include "weight_types.h"

namespace octavo {

// `rows` rows of k weights of a float type -> rows of `to` (Q8_0 or Q4_1), on all threads. k is whole groups of 32.
// Throws std::invalid_argument for other types or sizes.
void quantize_rows(ThreadPool& pool, WeightType from, const uint8_t* in, int64_t rows, int64_t k, WeightType to,
                   uint8_t* out);

}  // namespace octavo
