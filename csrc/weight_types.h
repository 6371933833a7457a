// GGUF's weight formats: how to read the numbers of a row.
#pragma once

#include <cstdint>
#include <string>

namespace octavo {

enum class WeightType { F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K };

struct WeightTypeInfo {
    const char* name;
    int block_weights;  // weights in a block
    int block_bytes;
    int zero;  // quantised weights: the unsigned integer that means 0 (none if the format has minima)
};

const WeightTypeInfo& info(WeightType type);

inline bool is_float(WeightType type) { return type <= WeightType::BF16; }

// Throws std::invalid_argument for an unknown name.
WeightType parse_weight_type(const std::string& name);

// Bytes of a row of k weights. Throws std::invalid_argument if they are not whole blocks.
int64_t row_bytes(WeightType type, int64_t k);

// 32 consecutive weights of a quantised row: weight i is (q[i] - zero) * scale[i / 16] + min.
// What the file holds of them: scale[i] = scale_half * scale_factor[i], min = min_half * -min_factor (K formats),
// min = min_half (others; their factors are not set).
struct WeightGroup {
    uint8_t q[32];
    float scale[2];
    float min;
    uint16_t scale_half;
    uint16_t min_half;
    int scale_factor[2];
    int min_factor;
};

// Group g (of 32 weights) of the row.
void read_group(WeightType type, const uint8_t* row, int64_t g, WeightGroup& group);

// k weights of the row as float.
void dequantize_row(WeightType type, const uint8_t* row, int64_t k, float* out);

}  // namespace octavo
