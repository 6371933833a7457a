// Rows, laid out for the kernels of linear maps.
#include "linear_layout.h"

#include <algorithm>

#include "linear.h"

namespace octavo {
namespace {

constexpr int64_t kBlockBytes = 384 << 10;  // rows of a block: they stay in the second-level cache
constexpr int64_t kParallelRows = 32;       // from which threads share the work

// The bytes from `at` on, and moves it past them.
template <class T>
T* take(uintptr_t& at, int64_t count) {
    T* taken = reinterpret_cast<T*>(at);
    at += round_up_to_line(static_cast<size_t>(count) * sizeof(T));
    return taken;
}

}  // namespace

uint8_t* linear_scratch(size_t size) {
    thread_local AlignedBuffer buffer;
    if (buffer.size() < size) buffer = AlignedBuffer(size + size / 4);
    return buffer.data();
}

int64_t Linear::rows_in_block() const {
    const int64_t row = k_ * (any_float_ ? 4 : 1);
    return std::max<int64_t>(kMaxRows, kBlockBytes / row / kMaxRows * kMaxRows);
}

size_t Linear::layout_bytes(int64_t rows) const {
    const LinearRows laid = place(nullptr, rows);
    return reinterpret_cast<uintptr_t>(laid.x) +
           round_up_to_line(any_float_ ? static_cast<size_t>(rows * k_) * sizeof(float) : 0);
}

LinearRows Linear::place(uint8_t* memory, int64_t rows) const {
    const int64_t groups = any_quant_ ? k_ / kStep * rows : 0;
    auto at = reinterpret_cast<uintptr_t>(memory);
    LinearRows laid{};
    laid.count = rows;
    laid.q = take<int8_t>(at, groups * kStep);
    laid.scale = take<float>(at, groups);
    laid.sums = take<int32_t>(at, groups * 2);
    for (size_t i = 0; i < corrections_.size(); ++i) {
        laid.corrections[i] = take<uint8_t>(at, groups * 4 * corrections_[i].num_sums);
    }
    laid.x = reinterpret_cast<float*>(at);
    return laid;
}

LinearRows Linear::some(const LinearRows& rows, int64_t first, int64_t count) const {
    const int64_t groups = any_quant_ ? k_ / kStep * first : 0;
    LinearRows part = rows;
    part.count = count;
    part.q += groups * kStep;
    part.scale += groups;
    part.sums += groups * 2;
    for (size_t i = 0; i < corrections_.size(); ++i) {
        part.corrections[i] += groups * 4 * corrections_[i].num_sums;
    }
    part.x += any_float_ ? first * k_ : 0;
    return part;
}

void Linear::lay_out(Context& context, const RowSource& x, int64_t first_row, const LinearRows& to,
                     float* buffers) const {
    const auto tile = [&](int64_t row, int count, int thread) {
        float* buffer = buffers + thread * kMaxRows * k_;
        lay_out_columns(context, x.rows(first_row + row, count, buffer), k_, row, count, 0, k_, to);
    };
    const bool parallel = to.count >= kParallelRows;
    if (parallel) {
        context.pool.parallel_for(to.count / kMaxRows,
                                  [&](int64_t i, int thread) { tile(i * kMaxRows, kMaxRows, thread); });
    }
    for_each_tile(to.count, 0, [&](int64_t row, int, int count) {
        if (!parallel || count < kMaxRows) tile(row, count, 0);
    });
}

void Linear::lay_out_columns(const Context& context, const float* from, int64_t stride, int64_t row, int count,
                             int64_t first, int64_t columns, const LinearRows& to) const {
    if (any_quant_) {
        const int64_t at = row * (k_ / kStep) + first / kStep * count;
        select_linear_quant_kernels(context.isa)
            .quantize(from, stride, count, columns / kStep, to.q + at * kStep, to.scale + at, to.sums + 2 * at);
        correct(to, row, count, first / kStep, columns / kStep);
    }
    if (any_float_) {
        const int64_t widest = kRowTiles[kFirstFloatTile];
        for (int r = 0; r < count; ++r) {
            const int64_t tile = count > widest ? r / widest * widest : 0;  // first row of a narrower tile
            const int64_t n = std::min<int64_t>(count, widest);
            float* out = to.x + (row + tile) * k_ + first * n + (r - tile);
            for (int64_t i = 0; i < columns; ++i) out[i * n] = from[r * stride + i];
        }
    }
}

// The corrections of some steps of a tile, from its sums.
void Linear::correct(const LinearRows& rows, int64_t row, int count, int64_t first_step, int64_t steps) const {
    const int64_t at = row * (k_ / kStep) + first_step * count;
    const float* scale = rows.scale + at;
    for (size_t i = 0; i < corrections_.size(); ++i) {
        const Correction& c = corrections_[i];
        auto* floats = reinterpret_cast<float*>(rows.corrections[i]) + at;
        auto* ints = reinterpret_cast<int32_t*>(rows.corrections[i]) + at * c.num_sums;
        for (int64_t step = 0; step < steps; ++step) {
            const int32_t* low = rows.sums + 2 * (at + step * count);
            const int32_t* high = low + count;
            for (int r = 0; r < count; ++r) {
                if (c.num_sums == 2) {
                    ints[2 * step * count + r] = -c.zero * low[r];
                    ints[(2 * step + 1) * count + r] = -c.zero * high[r];
                } else if (c.zero != 0) {
                    ints[step * count + r] = -c.zero * (low[r] + high[r]);
                } else {
                    floats[step * count + r] = scale[step * count + r] * static_cast<float>(low[r] + high[r]);
                }
            }
        }
    }
}

}  // namespace octavo
