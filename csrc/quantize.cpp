#include "quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "half.h"

namespace octavo {
namespace {

constexpr int kGroup = 32;

void put_half(uint8_t* p, float value) {
    const uint16_t half = float_to_half(value);
    std::memcpy(p, &half, 2);
}

// 0 for scales that float16 holds as 0 at any rate.
float inverse(float d) {
    const float id = 1.0f / d;
    return std::isfinite(id) ? id : 0.0f;
}

float less(float a, float b) { return a < b ? a : b; }
float more(float a, float b) { return a > b ? a : b; }

// value = d * q, |q| <= 127; halves are rounded away from 0.
void quantize_q8_0(const float* x, uint8_t* out) {
    float peaks[8] = {};
    for (int i = 0; i < kGroup; ++i) peaks[i % 8] = more(std::fabs(x[i]), peaks[i % 8]);
    const float peak = *std::max_element(peaks, peaks + 8);
    const float d = peak / 127, id = inverse(d);
    put_half(out, d);
    for (int i = 0; i < kGroup; ++i) {
        const float y = x[i] * id, whole = std::trunc(y);
        const int q = static_cast<int>(whole) + static_cast<int>(2 * (y - whole));
        out[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(q));
    }
}

// value = d * q + min, 0 <= q <= 15.
void quantize_q4_1(const float* x, uint8_t* out) {
    float lows[8], highs[8];
    for (int i = 0; i < 8; ++i) lows[i] = highs[i] = x[i];
    for (int i = 8; i < kGroup; ++i) {
        lows[i % 8] = less(x[i], lows[i % 8]);
        highs[i % 8] = more(x[i], highs[i % 8]);
    }
    const float low = *std::min_element(lows, lows + 8), high = *std::max_element(highs, highs + 8);
    const float d = (high - low) / 15, id = inverse(d);
    put_half(out, d);
    put_half(out + 2, low);
    uint8_t q[kGroup];
    for (int i = 0; i < kGroup; ++i) {
        q[i] = static_cast<uint8_t>(std::min(15, static_cast<int>((x[i] - low) * id + 0.5f)));
    }
    for (int i = 0; i < kGroup / 2; ++i) out[4 + i] = static_cast<uint8_t>(q[i] | q[i + kGroup / 2] << 4);
}

}  // namespace

void quantize_rows(ThreadPool& pool, WeightType from, const uint8_t* in, int64_t rows, int64_t k, WeightType to,
                   uint8_t* out) {
    const bool known = to == WeightType::Q8_0 || to == WeightType::Q4_1;
    if (!is_float(from) || !known || k % kGroup != 0) {
        throw std::invalid_argument(std::string("quantize: expected F32, F16 or BF16 rows of whole groups of 32, and Q8_0 "
                                                "or Q4_1 to become; got ") +
                                    info(from).name + " rows of " + std::to_string(k) + " and " + info(to).name);
    }
    const auto quantize = to == WeightType::Q8_0 ? quantize_q8_0 : quantize_q4_1;
    const int64_t in_bytes = row_bytes(from, k), out_bytes = row_bytes(to, k);
    pool.parallel_for(rows, [&](int64_t row, int) {
        thread_local std::vector<float> numbers;
        numbers.resize(static_cast<size_t>(k));
        dequantize_row(from, in + row * in_bytes, k, numbers.data());
        uint8_t* to_row = out + row * out_bytes;
        for (int64_t g = 0; g < k / kGroup; ++g) quantize(numbers.data() + g * kGroup, to_row + g * info(to).block_bytes);
    });
}

}  // namespace octavo
