// Packing of weights into panels; linear_kernels.h draws the layout.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "linear.h"
#include "linear_kernels.h"

namespace octavo {
namespace {

struct StepLayout {
    int bits;
    int scale_bytes;
    int num_scales;
    bool has_min;

    int scales_at() const { return kLanes * kStep * bits / 8; }
    int min_at() const { return scales_at() + num_scales * kLanes * scale_bytes; }
    int bytes() const { return min_at() + (has_min ? kLanes * scale_bytes : 0); }
};

StepLayout step_layout(WeightType type) {
    switch (type) {
        case WeightType::Q4_0: return {4, 2, 1, false};
        case WeightType::Q4_1: return {4, 2, 1, true};
        case WeightType::Q5_1: return {8, 2, 1, true};
        case WeightType::Q4_K: return {4, 4, 1, true};
        case WeightType::Q5_K: return {8, 4, 1, true};
        case WeightType::Q6_K: return {8, 4, 2, false};
        default: return {8, 2, 1, false};  // Q8_0, Q5_0
    }
}

void put_scale(uint8_t* p, int lane, int scale_bytes, float value, uint16_t half) {
    if (scale_bytes == 2) {
        std::memcpy(p + 2 * lane, &half, 2);
    } else {
        std::memcpy(p + 4 * lane, &value, 4);
    }
}

void put_integers(uint8_t* step, int lane, int bits, const uint8_t* q) {
    uint8_t* p = step + 4 * lane;
    if (bits == 8) {
        for (int j = 0; j < 8; ++j) std::memcpy(p + 64 * j, q + 4 * j, 4);
        return;
    }
    for (int j = 0; j < 4; ++j) {
        for (int b = 0; b < 4; ++b) p[64 * j + b] = static_cast<uint8_t>(q[8 * j + b] | q[8 * j + 4 + b] << 4);
    }
}

bool pack_quantized(WeightType type, const uint8_t* row, int64_t k, int lane, uint8_t* panel) {
    const StepLayout layout = step_layout(type);
    bool finite = true;
    WeightGroup group;
    for (int64_t g = 0; g < k / kStep; ++g) {
        uint8_t* step = panel + g * layout.bytes();
        read_group(type, row, g, group);
        finite = finite && std::isfinite(group.scale[0]) && std::isfinite(group.scale[1]) && std::isfinite(group.min);
        put_integers(step, lane, layout.bits, group.q);
        uint8_t* scales = step + layout.scales_at();
        put_scale(scales, lane, layout.scale_bytes, group.scale[0], group.scale_half);
        if (layout.num_scales == 2) put_scale(scales, lane + kLanes, layout.scale_bytes, group.scale[1], 0);
        if (layout.has_min) put_scale(step + layout.min_at(), lane, layout.scale_bytes, group.min, group.min_half);
    }
    return finite;
}

template <class Bits>
bool pack_float_rows(const uint8_t* rows, int64_t row_size, int count, int64_t k, Bits exponent, uint8_t* panel) {
    bool finite = true;
    for (int64_t i = 0; i < k; ++i) {
        for (int lane = 0; lane < count; ++lane) {
            Bits bits;
            std::memcpy(&bits, rows + lane * row_size + i * static_cast<int64_t>(sizeof bits), sizeof bits);
            finite = finite && (bits & exponent) != exponent;
            std::memcpy(panel + (i * kLanes + lane) * static_cast<int64_t>(sizeof bits), &bits, sizeof bits);
        }
    }
    return finite;
}

bool pack_floats(WeightType type, const uint8_t* rows, int count, int64_t k, uint8_t* panel) {
    const int64_t size = row_bytes(type, k);
    if (type == WeightType::F32) return pack_float_rows<uint32_t>(rows, size, count, k, 0x7f800000u, panel);
    const uint16_t exponent = type == WeightType::F16 ? 0x7c00 : 0x7f80;
    return pack_float_rows<uint16_t>(rows, size, count, k, exponent, panel);
}

}  // namespace

int64_t panel_bytes(WeightType type, int64_t k) {
    return is_float(type) ? k * kLanes * info(type).block_bytes : k / kStep * step_layout(type).bytes();
}

int64_t pack_panel(const RawMatrix& matrix, int64_t k, int64_t first, uint8_t* panel) {
    const int64_t size = row_bytes(matrix.type, k);
    const auto count = static_cast<int>(std::min<int64_t>(kLanes, matrix.num_outputs - first));
    const uint8_t* rows = matrix.data + first * size;
    if (count < kLanes) std::memset(panel, 0, static_cast<size_t>(panel_bytes(matrix.type, k)));
    if (is_float(matrix.type)) return pack_floats(matrix.type, rows, count, k, panel) ? -1 : first;
    for (int lane = 0; lane < count; ++lane) {
        if (!pack_quantized(matrix.type, rows + lane * size, k, lane, panel)) return first + lane;
    }
    return -1;
}

}  // namespace octavo
