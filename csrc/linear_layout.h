// What the files of the linear maps share: tiles of rows, and memory for laying rows out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "context.h"
#include "linear_kernels.h"

namespace octavo {

// Memory for the rows of one call. Each calling thread keeps its own; the next call gives the same.
uint8_t* linear_scratch(size_t size);

inline size_t round_up_to_line(size_t n) { return (n + 63) / 64 * 64; }

// Bytes of the buffers of `Linear::lay_out`.
inline size_t buffer_bytes(const Context& context, int64_t k) {
    return round_up_to_line(static_cast<size_t>(context.pool.num_threads() * kMaxRows * k) * sizeof(float));
}

// Calls fn(first row, tile index, rows in the tile) for tiles that cover `rows` rows, the widest first.
template <class F>
void for_each_tile(int64_t rows, int first_tile, F&& fn) {
    int64_t row = 0;
    for (int tile = first_tile; tile < kNumRowTiles; ++tile) {
        for (; rows - row >= kRowTiles[tile]; row += kRowTiles[tile]) fn(row, tile, kRowTiles[tile]);
    }
}

}  // namespace octavo
