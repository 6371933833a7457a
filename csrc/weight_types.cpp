#include "weight_types.h"

#include <cstring>
#include <iterator>
#include <stdexcept>

#include "half.h"

namespace octavo {
namespace {

constexpr WeightTypeInfo kTypes[] = {
    {"F32", 1, 4, 0},      {"F16", 1, 2, 0},      {"BF16", 1, 2, 0},    {"Q8_0", 32, 34, 128},
    {"Q4_0", 32, 18, 8},   {"Q4_1", 32, 20, 0},   {"Q5_0", 32, 22, 16}, {"Q5_1", 32, 24, 0},
    {"Q4_K", 256, 144, 0}, {"Q5_K", 256, 176, 0}, {"Q6_K", 256, 210, 32},
};

uint16_t read16(const uint8_t* p) {
    uint16_t v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

uint32_t read32(const uint8_t* p) {
    uint32_t v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

void set_half_scale(WeightGroup& group, uint16_t scale, uint16_t min) {
    group.scale_half = scale;
    group.min_half = min;
    group.scale[0] = group.scale[1] = half_to_float(scale);
    group.min = half_to_float(min);
}

// 16 bytes hold weights 0..15 in their low halves, 16..31 in their high ones.
void read_nibbles(const uint8_t* p, uint8_t* q) {
    for (int i = 0; i < 16; ++i) {
        q[i] = p[i] & 15;
        q[i + 16] = p[i] >> 4;
    }
}

// Bit i of the word is the fifth bit of weight i.
void add_fifth_bits(uint32_t bits, uint8_t* q) {
    for (int i = 0; i < 32; ++i) q[i] = static_cast<uint8_t>(q[i] | ((bits >> i & 1) << 4));
}

void read_q8_0(const uint8_t* block, WeightGroup& group) {
    set_half_scale(group, read16(block), 0);
    for (int i = 0; i < 32; ++i) group.q[i] = block[2 + i] ^ 0x80;
}

// Q4_K and Q5_K pack eight 6-bit scales and eight 6-bit minima into 12 bytes.
void set_k_scale(const uint8_t* block, int j, WeightGroup& group) {
    const uint8_t* s = block + 4;
    const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6 << 4);
    const int min = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6 << 4);
    group.scale_half = read16(block);
    group.min_half = read16(block + 2);
    group.scale_factor[0] = group.scale_factor[1] = scale;
    group.min_factor = min;
    group.scale[0] = group.scale[1] = half_to_float(group.scale_half) * static_cast<float>(scale);
    group.min = -(half_to_float(group.min_half) * static_cast<float>(min));
}

// Groups 2i and 2i + 1 are the low and the high halves of the same 32 bytes.
void read_k_nibbles(const uint8_t* p, int j, uint8_t* q) {
    p += j / 2 * 32;
    const int shift = j % 2 * 4;
    for (int i = 0; i < 32; ++i) q[i] = p[i] >> shift & 15;
}

void read_q4_k(const uint8_t* block, int j, WeightGroup& group) {
    set_k_scale(block, j, group);
    read_k_nibbles(block + 16, j, group.q);
}

void read_q5_k(const uint8_t* block, int j, WeightGroup& group) {
    set_k_scale(block, j, group);
    read_k_nibbles(block + 48, j, group.q);
    const uint8_t* fifth = block + 16;
    for (int i = 0; i < 32; ++i) group.q[i] = static_cast<uint8_t>(group.q[i] | ((fifth[i] >> j & 1) << 4));
}

// Two halves of 128 weights: 64 bytes of low nibbles, 32 bytes of upper bit pairs; a scale for each 16 weights.
void read_q6_k(const uint8_t* block, int j, WeightGroup& group) {
    const int half = j / 4, quarter = j % 4;
    const uint8_t* low = block + half * 64 + quarter % 2 * 32;
    const uint8_t* high = block + 128 + half * 32;
    const int low_shift = quarter / 2 * 4, high_shift = quarter * 2;
    for (int i = 0; i < 32; ++i) {
        group.q[i] = static_cast<uint8_t>((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4);
    }
    const auto* scales = reinterpret_cast<const int8_t*>(block + 192) + half * 8 + quarter * 2;
    group.scale_half = read16(block + 208);
    group.min_half = 0;
    for (int i = 0; i < 2; ++i) {
        group.scale_factor[i] = scales[i];
        group.scale[i] = half_to_float(group.scale_half) * static_cast<float>(scales[i]);
    }
    group.min = 0;
    group.min_factor = 0;
}

}  // namespace

const WeightTypeInfo& info(WeightType type) { return kTypes[static_cast<int>(type)]; }

WeightType parse_weight_type(const std::string& name) {
    std::string known;
    for (int i = 0; i < static_cast<int>(std::size(kTypes)); ++i) {
        if (name == kTypes[i].name) return static_cast<WeightType>(i);
        known += std::string(" ") + kTypes[i].name;
    }
    throw std::invalid_argument("weight type: expected one of" + known + ", got '" + name + "'");
}

int64_t row_bytes(WeightType type, int64_t k) {
    const WeightTypeInfo& t = info(type);
    if (k <= 0 || k % t.block_weights != 0) {
        throw std::invalid_argument(std::string(t.name) + ": expected rows of a multiple of " +
                                    std::to_string(t.block_weights) + " weights, got " + std::to_string(k));
    }
    return k / t.block_weights * t.block_bytes;
}

void read_group(WeightType type, const uint8_t* row, int64_t g, WeightGroup& group) {
    const WeightTypeInfo& t = info(type);
    const int groups_in_block = t.block_weights / 32;
    const uint8_t* block = row + g / groups_in_block * t.block_bytes;
    const int j = static_cast<int>(g % groups_in_block);
    switch (type) {
        case WeightType::Q8_0: return read_q8_0(block, group);
        case WeightType::Q4_0:
            set_half_scale(group, read16(block), 0);
            return read_nibbles(block + 2, group.q);
        case WeightType::Q4_1:
            set_half_scale(group, read16(block), read16(block + 2));
            return read_nibbles(block + 4, group.q);
        case WeightType::Q5_0:
            set_half_scale(group, read16(block), 0);
            read_nibbles(block + 6, group.q);
            return add_fifth_bits(read32(block + 2), group.q);
        case WeightType::Q5_1:
            set_half_scale(group, read16(block), read16(block + 2));
            read_nibbles(block + 8, group.q);
            return add_fifth_bits(read32(block + 4), group.q);
        case WeightType::Q4_K: return read_q4_k(block, j, group);
        case WeightType::Q5_K: return read_q5_k(block, j, group);
        case WeightType::Q6_K: return read_q6_k(block, j, group);
        default: throw std::logic_error("read_group: not a quantised type");
    }
}

void dequantize_row(WeightType type, const uint8_t* row, int64_t k, float* out) {
    if (type == WeightType::F32) {
        std::memcpy(out, row, static_cast<size_t>(k) * 4);
        return;
    }
    if (is_float(type)) {
        for (int64_t i = 0; i < k; ++i) {
            const uint16_t bits = read16(row + 2 * i);
            out[i] = type == WeightType::F16 ? half_to_float(bits) : bfloat_to_float(bits);
        }
        return;
    }
    const int zero = info(type).zero;
    WeightGroup group;
    for (int64_t g = 0; g < k / 32; ++g, out += 32) {
        read_group(type, row, g, group);
        for (int i = 0; i < 32; ++i) {
            const float product = static_cast<float>(group.q[i] - zero) * group.scale[i / 16];
            out[i] = zero != 0 ? product : product + group.min;
        }
    }
}

}  // namespace octavo
