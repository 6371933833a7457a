// Kernel of argmax.cpp, one for each instruction set.
#pragma once

#include <cstdint>

#include "isa.h"

namespace octavo {

struct ArgmaxKernels {
    // The largest of n >= 1 numbers, of whichever of equals; NaN if one of them is.
    float (*max)(const float* x, int64_t n);
};

OCTAVO_KERNEL_TABLE(ArgmaxKernels, argmax_kernels)

}  // namespace octavo
