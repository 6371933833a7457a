// The largest number of each row: greedy sampling.
#pragma once

#include <cstdint>

#include "context.h"

namespace octavo {

// x [rows, size] -> out [rows]: the column of the row's largest number, the lowest of equals; -1 where that is
// infinite, where the row holds a NaN, and where size is 0.
void argmax(Context& context, const float* x, int64_t rows, int64_t size, int32_t* out);

}  // namespace octavo
