#include "embedding.h"

#include <stdexcept>
#include <string>

namespace octavo {

void look_up(WeightType type, const uint8_t* table, int64_t num_rows, int64_t k, const int32_t* ids, int64_t num_ids,
             float* out) {
    for (int64_t i = 0; i < num_ids; ++i) {
        if (ids[i] < 0 || ids[i] >= num_rows) {
            throw std::out_of_range("token id " + std::to_string(ids[i]) + " at position " + std::to_string(i) +
                                    ": expected 0 to " + std::to_string(num_rows - 1));
        }
    }
    const int64_t size = row_bytes(type, k);
    for (int64_t i = 0; i < num_ids; ++i) dequantize_row(type, table + ids[i] * size, k, out + i * k);
}

}  // namespace octavo
