#include "embedding.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

constexpr int64_t kRowsPerChunk = 16;  // fewer are not worth another thread

}  // namespace

void look_up(WeightType type, const uint8_t* table, int64_t num_rows, int64_t k, const int32_t* ids, int64_t num_ids,
             float* out, ThreadPool& pool) {
    for (int64_t i = 0; i < num_ids; ++i) {
        if (ids[i] < 0 || ids[i] >= num_rows) {
            throw std::out_of_range("token id " + std::to_string(ids[i]) + " at position " + std::to_string(i) +
                                    ": expected 0 to " + std::to_string(num_rows - 1));
        }
    }
    const int64_t size = row_bytes(type, k);
    pool.parallel_for((num_ids + kRowsPerChunk - 1) / kRowsPerChunk, [&](int64_t chunk, int) {
        const int64_t end = std::min(num_ids, (chunk + 1) * kRowsPerChunk);
        for (int64_t i = chunk * kRowsPerChunk; i < end; ++i) {
            dequantize_row(type, table + ids[i] * size, k, out + i * k);
        }
    });
}

}  // namespace octavo
