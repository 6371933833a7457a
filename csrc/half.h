// 16-bit floats as bits, on any machine. For files that are compiled once (see isa.h).
#pragma once

#include <cstdint>
#include <cstring>

namespace octavo {

inline float bits_to_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// IEEE binary16 -> float, exact.
inline float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t rest = static_cast<uint32_t>(half & 0x7fffu) << 13;
    if ((half & 0x7c00u) == 0x7c00u) return bits_to_float(sign | 0x7f800000u | rest);  // infinity, NaN
    // Move the exponent's bias by a product: right for numbers below the smallest normal one too.
    const float magnitude = bits_to_float(rest) * 0x1p112f;
    uint32_t bits;
    std::memcpy(&bits, &magnitude, sizeof bits);
    return bits_to_float(sign | bits);
}

// float -> the nearest IEEE binary16, ties to even; too large ones become infinite.
inline uint16_t float_to_half(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits >= 0x47800000u) return static_cast<uint16_t>(sign | (bits > 0x7f800000u ? 0x7e00u : 0x7c00u));
    if (bits < 0x38800000u) {  // below the smallest normal half: the addition rounds to a multiple of 2^-24
        const float sum = bits_to_float(bits) + 0.5f;
        uint32_t rounded;
        std::memcpy(&rounded, &sum, sizeof rounded);
        return static_cast<uint16_t>(sign | (rounded - 0x3f000000u));
    }
    return static_cast<uint16_t>(sign | (bits - 0x38000000u + 0xfffu + (bits >> 13 & 1u)) >> 13);
}

inline float bfloat_to_float(uint16_t bits) { return bits_to_float(static_cast<uint32_t>(bits) << 16); }

}  // namespace octavo
