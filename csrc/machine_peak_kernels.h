// What the machine can do at best, as loops of one instruction set: the measure that kernels are held against.
#pragma once

#include <cstdint>

#include "isa.h"

namespace octavo {

struct PeakKernels {
    // Reads all bytes (a multiple of 256) in order; the result depends on each of them.
    uint64_t (*read)(const uint8_t* data, int64_t bytes);
    // `rounds` rounds of independent float multiply-adds in registers.
    float (*fma)(int64_t rounds, float factor);
    int64_t fma_ops;  // floating-point operations of a round (a multiply-add is two)
    // The same with integer dot products of bytes, by the instruction that serves them best.
    int32_t (*dot)(int64_t rounds, int32_t seed);
    int64_t dot_ops;
    const char* dot_name;
};

OCTAVO_KERNEL_TABLE(PeakKernels, peak_kernels)

}  // namespace octavo
