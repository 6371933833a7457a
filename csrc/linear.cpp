#include "linear.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>

#include "linear_kernels.h"

namespace octavo {
namespace {

constexpr int64_t kBlockBytes = 384 << 10;  // rows of a block: they stay in the second-level cache
constexpr int64_t kChunksPerThread = 6;     // of panels: evens out threads that are slowed by others
constexpr int64_t kGroupPanels = 4;         // that chunks keep together, for the kernels which take a few at once
constexpr int64_t kParallelLayout = 16;     // rows from which threads share the layout work

size_t round_up(size_t n) { return (n + 63) / 64 * 64; }

// Memory for the rows of one call. Each calling thread keeps its own.
uint8_t* scratch(size_t size) {
    thread_local AlignedBuffer buffer;
    if (buffer.size() < size) buffer = AlignedBuffer(size + size / 4);
    return buffer.data();
}

// Calls fn(first row, tile index, rows in the tile) for tiles that cover `rows` rows, the widest first.
template <class F>
void for_each_tile(int64_t rows, int first_tile, F&& fn) {
    int64_t row = 0;
    for (int tile = first_tile; tile < kNumRowTiles; ++tile) {
        for (; rows - row >= kRowTiles[tile]; row += kRowTiles[tile]) fn(row, tile, kRowTiles[tile]);
    }
}

int quant_index(WeightType type) { return static_cast<int>(type) - static_cast<int>(WeightType::Q8_0); }
int float_index(WeightType type) { return static_cast<int>(type); }

}  // namespace

// Every array holds its rows tile after tile; since a row takes the same space whatever its tile, tile
// positions are multiples of the first row.
struct Linear::Rows {
    int64_t count;
    int8_t* q;
    float* scale;
    int32_t* sums;
    std::vector<uint8_t*> corrections;
    float* x;
};

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
    return offset + round_up(static_cast<size_t>(part.num_panels * part.panel_bytes));
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
        std::memset(packed_.data() + used, 0, round_up(used) - used);  // equal weights, equal bytes
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

int64_t Linear::rows_in_block() const {
    const int64_t row = k_ * (any_float_ ? 4 : 1);
    return std::max<int64_t>(kMaxRows, kBlockBytes / row / kMaxRows * kMaxRows);
}

void Linear::run(Context& context, const float* x, int64_t rows, const float* bias, float* out) const {
    const int64_t block = rows_in_block();
    for (int64_t row = 0; row < rows; row += block) {
        const int64_t count = std::min(block, rows - row);
        const Rows laid = lay_out(context, x + row * k_, count);
        const int64_t groups = (num_panels_ + kGroupPanels - 1) / kGroupPanels;
        const int64_t chunks = std::min<int64_t>(groups, context.pool.num_threads() * kChunksPerThread);
        context.pool.parallel_for(chunks, [&](int64_t chunk, int) {
            const int64_t begin = groups * chunk / chunks * kGroupPanels;
            const int64_t end = std::min(groups * (chunk + 1) / chunks * kGroupPanels, num_panels_);
            run_panels(context, laid, begin, end, bias, out + row * num_outputs_);
        });
    }
}

Linear::Rows Linear::lay_out(Context& context, const float* x, int64_t rows) const {
    const auto count = static_cast<size_t>(rows);
    const auto k = static_cast<size_t>(k_);
    const size_t groups = any_quant_ ? k / kStep * count : 0;
    size_t size = 0;
    const auto reserve = [&](size_t bytes) {
        const size_t at = size;
        size += round_up(bytes);
        return at;
    };
    const size_t q_at = reserve(groups * kStep);
    const size_t scale_at = reserve(groups * sizeof(float));
    const size_t sums_at = reserve(groups * 2 * sizeof(int32_t));
    std::vector<size_t> corrections_at;
    for (const Correction& c : corrections_) {
        corrections_at.push_back(reserve(groups * 4 * static_cast<size_t>(c.num_sums)));
    }
    const size_t x_at = reserve(any_float_ ? count * k * sizeof(float) : 0);

    uint8_t* base = scratch(size);
    Rows laid{rows,
              reinterpret_cast<int8_t*>(base + q_at),
              reinterpret_cast<float*>(base + scale_at),
              reinterpret_cast<int32_t*>(base + sums_at),
              {},
              reinterpret_cast<float*>(base + x_at)};
    for (const size_t at : corrections_at) laid.corrections.push_back(base + at);

    if (any_quant_) {
        const int64_t full = rows / kMaxRows;
        const bool parallel = rows >= kParallelLayout * 2;
        if (parallel) {
            context.pool.parallel_for(full, [&](int64_t i, int) {
                quantize_tile(context, laid, x, i * kMaxRows, kMaxRows);
            });
        }
        for_each_tile(rows, 0, [&](int64_t row, int, int n) {
            if (!parallel || n < kMaxRows) quantize_tile(context, laid, x, row, n);
        });
    }
    if (any_float_) {
        for_each_tile(rows, kFirstFloatTile, [&](int64_t row, int, int n) {
            float* to = laid.x + row * k_;
            for (int r = 0; r < n; ++r) {
                const float* from = x + (row + r) * k_;
                for (int64_t i = 0; i < k_; ++i) to[i * n + r] = from[i];
            }
        });
    }
    return laid;
}

void Linear::quantize_tile(const Context& context, const Rows& rows, const float* x, int64_t row, int count) const {
    const int64_t steps = k_ / kStep;
    const int64_t at = row * steps;
    int32_t* sums = rows.sums + 2 * at;
    float* scale = rows.scale + at;
    select_linear_quant_kernels(context.isa).quantize(x + row * k_, k_, count, steps, rows.q + at * kStep, scale, sums);
    for (size_t i = 0; i < corrections_.size(); ++i) {
        const Correction& c = corrections_[i];
        auto* floats = reinterpret_cast<float*>(rows.corrections[i]) + at;
        auto* ints = reinterpret_cast<int32_t*>(rows.corrections[i]) + at * c.num_sums;
        for (int64_t step = 0; step < steps; ++step) {
            const int32_t* low = sums + 2 * step * count;
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

void Linear::run_panels(const Context& context, const Rows& rows, int64_t begin, int64_t end, const float* bias,
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
int64_t Linear::run_quant(const Context& context, const Part& part, int64_t panel, int64_t end, const Rows& rows,
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
        t.correction = rows.corrections[static_cast<size_t>(part.correction)] + row * steps * correction_bytes;
        t.out = out + row * num_outputs_ + output;
        fns[tile](t);
        t.next = nullptr;
    });
    return panel + width;
}

int64_t Linear::run_floats(const Context& context, const Part& part, int64_t panel, int64_t end, const Rows& rows,
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
