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
    bool k_format;
    int num_scales;  // in a step
    bool has_min;

    int scales_at() const { return kLanes * kStep * bits / 8; }
    int scales_bytes() const { return kLanes * (k_format ? 1 : 2); }  // of one set of scales or minima
    int step_bytes() const { return scales_at() + (num_scales + has_min) * scales_bytes(); }
    int header_bytes() const { return k_format ? (1 + has_min) * kLanes * 2 : 0; }  // before each kHeaderSteps steps

    int64_t step_at(int64_t step) const {
        return step * step_bytes() + (step / kHeaderSteps + 1) * header_bytes();
    }
};

StepLayout step_layout(WeightType type) {
    switch (type) {
        case WeightType::Q4_0: return {4, false, 1, false};
        case WeightType::Q4_1: return {4, false, 1, true};
        case WeightType::Q5_0: return {5, false, 1, false};
        case WeightType::Q5_1: return {5, false, 1, true};
        case WeightType::Q4_K: return {4, true, 1, true};
        case WeightType::Q5_K: return {5, true, 1, true};
        case WeightType::Q6_K: return {6, true, 2, false};
        default: return {8, false, 1, false};  // Q8_0
    }
}

void put_half(uint8_t* p, int lane, uint16_t half) { std::memcpy(p + 2 * lane, &half, 2); }

// Weights 4j .. 4j+3, a byte each.
uint32_t four(const uint8_t* q, int j) {
    uint32_t v;
    std::memcpy(&v, q + 4 * j, sizeof v);
    return v;
}

void put_four(uint8_t* p, uint32_t v) { std::memcpy(p, &v, sizeof v); }

void put_integers(uint8_t* step, int lane, int bits, const uint8_t* q) {
    uint8_t* p = step + 4 * lane;
    if (bits == 8) {
        for (int j = 0; j < 8; ++j) put_four(p + 64 * j, four(q, j));
        return;
    }
    constexpr uint32_t kLow = 0x0f0f0f0fu;
    for (int j = 0; j < 4; ++j) put_four(p + 64 * j, (four(q, 2 * j) & kLow) | (four(q, 2 * j + 1) & kLow) << 4);
    const int extra = bits - 4;                   // bits of a weight that are left
    const int shared = extra == 0 ? 0 : 8 / extra;  // chunks of 4 weights that share bytes
    for (int i = 0; i < extra; ++i) {
        uint32_t v = 0;
        for (int c = 0; c < shared; ++c) v |= (four(q, i * shared + c) >> 4 & kLow) << (c * extra);
        put_four(p + 64 * (4 + i), v);
    }
}

void put_scales(const StepLayout& layout, uint8_t* scales, int lane, const WeightGroup& group) {
    uint8_t* minima = scales + layout.num_scales * layout.scales_bytes();
    if (layout.k_format) {
        for (int i = 0; i < layout.num_scales; ++i) {
            scales[i * kLanes + lane] = static_cast<uint8_t>(group.scale_factor[i]);
        }
        if (layout.has_min) minima[lane] = static_cast<uint8_t>(group.min_factor);
    } else {
        put_half(scales, lane, group.scale_half);
        if (layout.has_min) put_half(minima, lane, group.min_half);
    }
}

bool pack_quantized(WeightType type, const uint8_t* row, int64_t k, int lane, uint8_t* panel) {
    const StepLayout layout = step_layout(type);
    bool finite = true;
    WeightGroup group;
    for (int64_t g = 0; g < k / kStep; ++g) {
        uint8_t* step = panel + layout.step_at(g);
        read_group(type, row, g, group);
        finite = finite && std::isfinite(group.scale[0]) && std::isfinite(group.scale[1]) && std::isfinite(group.min);
        put_integers(step, lane, layout.bits, group.q);
        put_scales(layout, step + layout.scales_at(), lane, group);
        if (layout.k_format && g % kHeaderSteps == 0) {
            uint8_t* header = step - layout.header_bytes();
            put_half(header, lane, group.scale_half);
            if (layout.has_min) put_half(header + 2 * kLanes, lane, group.min_half ^ 0x8000);
        }
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
    if (is_float(type)) return k * kLanes * info(type).block_bytes;
    const StepLayout layout = step_layout(type);
    return layout.step_at(k / kStep) - (k / kStep % kHeaderSteps == 0 ? layout.header_bytes() : 0);
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
