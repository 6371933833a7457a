// The machine's own peaks on the threads of a context. Each call does an amount of work that the caller times.
#pragma once

#include <cstdint>

#include "context.h"

namespace octavo {

// Reads `bytes` bytes (rounded down to whole pieces) once, shared out over the threads; returns how many were read.
int64_t peak_read(Context& context, const uint8_t* data, int64_t bytes);

// `rounds` rounds on each thread, in registers; return the number of operations done (a multiply-add is two).
int64_t peak_fma(Context& context, int64_t rounds);
int64_t peak_dot(Context& context, int64_t rounds);

// The instruction that peak_dot uses.
const char* peak_dot_name(const Context& context);

}  // namespace octavo
