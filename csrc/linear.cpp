#include "linear.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>

#include "linear_kernels.h"
#include "linear_layout.h"

namespace octavo {
namespace {

constexpr int64_t kChunksPerThread = 6;     // of panels: evens out threads that are slowed by others
constexpr int64_t kGroupPanels = 4;         // that chunks keep together, for the kernels which take a few at once

int quant_index(WeightType type) { return static_cast<int>(type) - static_cast<int>(WeightType::Q8_0); }
int float_index(WeightType type) { return static_cast<int>(type); }

}  // namespace

size_t Linear::add_part(const PackedMatrix& m, size_t offset) {
    row_bytes(m.type, k_);  // throws if k does not suit
    Part part{m.type, m.num_outputs, num_outputs_, num_panels_, (m.num_outputs + kLanes - 1) / kLanes,
              panel_bytes(m.type, k_), offset, 0};
    if (is_float(m.type)) {
        any_float_ = true;
    } else {
        any_quant_ = true;
        const Correction wanted{info(m.type).zero, m.type == WeightType::Q6_K ? 2 : 1};
        const auto found = std::find_if(corrections_.begin(), corrections_.end(), [&](const Correction& c) {
            return c.zero == wanted.zero && c.num_sums == wanted.num_sums;
        });
        part.correction = static_cast<int>(found - corrections_.begin());
        if (found == corrections_.end()) corrections_.push_back(wanted);
    }
    num_outputs_ += m.num_outputs;
    num_panels_ += part.num_panels;
    parts_.push_back(part);
    return offset + round_up_to_line(static_cast<size_t>(part.num_panels * part.panel_bytes));
}

Linear::Linear(const std::vector<PackedMatrix>& parts, int64_t k, const uint8_t* packed, size_t size) : k_(k) {
    size_t expected = 0;
    for (const PackedMatrix& m : parts) expected = add_part(m, expected);
    if (size != expected || reinterpret_cast<uintptr_t>(packed) % 64 != 0) {
        throw std::invalid_argument("packed weights: expected " + std::to_string(expected) +
                                    " bytes, aligned to 64, got " + std::to_string(size));
    }
    packed_ = AlignedBuffer::view(packed, size);
}

Linear::Linear(const std::vector<RawMatrix>& matrices, int64_t k, ThreadPool& pool) : k_(k) {
    size_t size = 0;
    for (const RawMatrix& m : matrices) size = add_part({m.type, m.num_outputs}, size);
    packed_ = AlignedBuffer(size);
    for (size_t i = 0; i < parts_.size(); ++i) {
        const Part& part = parts_[i];
        const size_t used = part.offset + static_cast<size_t>(part.num_panels * part.panel_bytes);
        std::memset(packed_.data() + used, 0, round_up_to_line(used) - used);  // equal weights, equal bytes
        std::atomic<int64_t> bad{-1};
        pool.parallel_for(part.num_panels, [&](int64_t panel, int) {
            uint8_t* to = packed_.data() + part.offset + panel * part.panel_bytes;
            const int64_t output = pack_panel(matrices[i], k_, panel * kLanes, to);
            if (output >= 0) bad.store(output, std::memory_order_relaxed);
        });
        if (bad.load() >= 0) {
            throw std::domain_error("tensor " + matrices[i].name + ": expected finite weights, row " +
                                    std::to_string(bad.load()) + " holds an infinity or NaN");
        }
    }
}

void Linear::run(Context& context, const RowSource& x, int64_t rows, const float* bias, float* out) const {
    const int64_t block = std::min(rows, rows_in_block());
    const size_t buffers = buffer_bytes(context, k_);
    uint8_t* memory = linear_scratch(buffers + layout_bytes(block));
    for (int64_t row = 0; row < rows; row += block) {
        const LinearRows laid = place(memory + buffers, std::min(block, rows - row));
        lay_out(context, x, row, laid, reinterpret_cast<float*>(memory));
        multiply(context, laid, bias, out + row * num_outputs_);
    }
}

void Linear::multiply(Context& context, const LinearRows& rows, const float* bias, float* out) const {
    const int64_t groups = (num_panels_ + kGroupPanels - 1) / kGroupPanels;
    const int64_t chunks = std::min<int64_t>(groups, context.pool.num_threads() * kChunksPerThread);
    context.pool.parallel_for(chunks, [&](int64_t chunk, int) {
        const int64_t begin = groups * chunk / chunks * kGroupPanels;
        const int64_t end = std::min(groups * (chunk + 1) / chunks * kGroupPanels, num_panels_);
        run_panels(context, rows, begin, end, bias, out);
    });
}

void Linear::run_panels(const Context& context, const LinearRows& rows, int64_t begin, int64_t end, const float* bias,
                        float* out) const {
    for (const Part& part : parts_) {
        const int64_t stop = std::min(end, part.first_panel + part.num_panels) - part.first_panel;
        int64_t panel = std::max(begin, part.first_panel) - part.first_panel;
        if (is_float(part.type)) {
            while (panel < stop) panel = run_floats(context, part, panel, stop, rows, bias, out);
        } else {
            while (panel < stop) panel = run_quant(context, part, panel, stop, rows, bias, out);
        }
    }
}

// run_quant, run_floats: one or a few panels from `panel` on; return the next one.
int64_t Linear::run_quant(const Context& context, const Part& part, int64_t panel, int64_t end, const LinearRows& rows,
                          const float* bias, float* out) const {
    const LinearQuantKernels& kernels = select_linear_quant_kernels(context.isa);
    const int64_t width = panel + kernels.wide_panels <= end ? kernels.wide_panels : 1;
    const LinearTileFn* fns = (width > 1 ? kernels.wide : kernels.tile)[quant_index(part.type)];
    const int64_t steps = k_ / kStep;
    const int64_t output = part.first_output + panel * kLanes;
    const int64_t correction_bytes = 4 * corrections_[static_cast<size_t>(part.correction)].num_sums;
    LinearTile t{};
    t.weights = packed_.data() + part.offset + panel * part.panel_bytes;
    t.next = panel + 2 * width <= end ? t.weights + width * part.panel_bytes : nullptr;
    t.steps = steps;
    t.out_stride = num_outputs_;
    t.outputs = static_cast<int>(std::min<int64_t>(width * kLanes, part.num_outputs - panel * kLanes));
    t.bias = bias == nullptr ? nullptr : bias + output;
    for_each_tile(rows.count, 0, [&](int64_t row, int tile, int) {
        t.q = rows.q + row * k_;
        t.scale = rows.scale + row * steps;
        t.correction = rows.corrections[part.correction] + row * steps * correction_bytes;
        t.out = out + row * num_outputs_ + output;
        fns[tile](t);
        t.next = nullptr;
    });
    return panel + width;
}

int64_t Linear::run_floats(const Context& context, const Part& part, int64_t panel, int64_t end, const LinearRows& rows,
                           const float* bias, float* out) const {
    const LinearFloatKernels& kernels = select_linear_float_kernels(context.isa);
    int64_t group = 1;
    for (const int n : kernels.wide_panels) group = std::max<int64_t>(group, n);
    group = std::min(group, end - panel);
    for_each_tile(rows.count, kFirstFloatTile, [&](int64_t row, int tile, int) {
        const int wide = kernels.wide_panels[tile];
        LinearTile t{};
        t.steps = k_;
        t.x = rows.x + row * k_;
        t.out_stride = num_outputs_;
        for (int64_t p = panel; p < panel + group;) {
            const int width = p + wide <= panel + group ? wide : 1;
            const auto& fns = width > 1 ? kernels.wide : kernels.tile;
            const int64_t output = part.first_output + p * kLanes;
            t.weights = packed_.data() + part.offset + p * part.panel_bytes;
            t.outputs = static_cast<int>(std::min<int64_t>(width * kLanes, part.num_outputs - p * kLanes));
            t.bias = bias == nullptr ? nullptr : bias + output;
            t.out = out + row * num_outputs_ + output;
            t.next = row == 0 && p + group + width <= end ? t.weights + group * part.panel_bytes : nullptr;
            fns[float_index(part.type)][tile](t);
            p += width;
        }
    });
    return panel + group;
}

}  // namespace octavo
