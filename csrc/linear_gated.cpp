// Gate and up halves of a linear map, combined while they are in the cache and laid out for the map that follows.
#include "linear_gated.h"

#include <algorithm>

#include "elementwise_kernels.h"
#include "linear_kernels.h"
#include "linear_layout.h"

namespace octavo {
namespace {

constexpr int64_t kChunksPerThread = 6;

// Panels of each half that are taken together: whole steps of the next map, and as many as the widest kernels take. Where
// many rows use them they have to stay in the first-level cache; for one tile of rows it is best to read on and on.
constexpr int kQuantGroup = kStep / kLanes;
constexpr int kFloatGroup = 4;
constexpr int kStreamGroup = 8;
constexpr int kMaxOutputs = kStreamGroup * kLanes;

}  // namespace

bool Linear::gates(const Linear& next) const {
    return parts_.size() == 2 && parts_[0].num_outputs == parts_[1].num_outputs && next.k_ == parts_[0].num_outputs;
}

void Linear::multiply_gated(Context& context, const LinearRows& rows, const float* bias, const Linear& next,
                            const LinearRows& to) const {
    const auto silu_mul = select_elementwise_kernels(context.isa).silu_mul;
    const int group_panels = rows.count <= kMaxRows ? kStreamGroup : any_float_ ? kFloatGroup : kQuantGroup;
    const int64_t stride = group_panels * kLanes;
    const int64_t groups = (parts_[0].num_panels + group_panels - 1) / group_panels;
    const int64_t chunks = std::min<int64_t>(groups, context.pool.num_threads() * kChunksPerThread);
    context.pool.parallel_for(chunks, [&](int64_t chunk, int) {
        alignas(64) float gate[kMaxRows * kMaxOutputs], up[kMaxRows * kMaxOutputs];
        const int64_t last = std::min(groups * (chunk + 1) / chunks * group_panels, parts_[0].num_panels);
        for (int64_t panel = groups * chunk / chunks * group_panels; panel < last; panel += group_panels) {
            const int64_t end = std::min(panel + group_panels, last);
            const int64_t output = panel * kLanes, columns = std::min(stride, next.k_ - output);
            for (int64_t row = 0; row < rows.count; row += kMaxRows) {
                const auto count = static_cast<int>(std::min<int64_t>(kMaxRows, rows.count - row));
                const bool first = row == 0;
                run_tile(context, {parts_[0], panel, end, first ? panel_at(parts_[1], panel) : nullptr}, rows,
                         {row, count}, bias, gate, stride);
                run_tile(context, {parts_[1], panel, end, first ? panel_at(parts_[0], end) : nullptr}, rows,
                         {row, count}, bias, up, stride);
                for (int r = 0; r < count; ++r) {
                    silu_mul(gate + r * stride, up + r * stride, columns, gate + r * stride);
                }
                for_each_tile(count, 0, [&](int64_t r, int, int n) {
                    next.lay_out_columns(context, gate + r * stride, stride, row + r, n, output, columns, to);
                });
            }
        }
    });
}

const uint8_t* Linear::panel_at(const Part& part, int64_t panel) const {
    return packed_.data() + part.offset + panel * part.panel_bytes;
}

// The outputs of some panels for a tile of any number of rows -> out [tile.count, stride].
void Linear::run_tile(const Context& context, const Panels& panels, const LinearRows& rows, Tile tile,
                      const float* bias, float* out, int64_t stride) const {
    const Part& part = panels.part;
    const auto type = static_cast<size_t>(part.type);
    LinearTile t{};
    t.out_stride = stride;
    const auto run = [&](LinearTileFn kernel, int64_t panel, int64_t width, int64_t first) {
        const int64_t output = part.first_output + panel * kLanes;
        t.weights = panel_at(part, panel);
        const bool fetch = panels.then != nullptr && first == 0;
        t.next = !fetch ? nullptr : panel + width < panels.end ? panel_at(part, panel + width) : panels.then;
        t.outputs = static_cast<int>(std::min<int64_t>(width * kLanes, part.num_outputs - panel * kLanes));
        t.bias = bias == nullptr ? nullptr : bias + output;
        t.out = out + first * stride + (panel - panels.begin) * kLanes;
        kernel(t);
    };
    if (is_float(part.type)) {
        const LinearFloatKernels& kernels = select_linear_float_kernels(context.isa);
        t.steps = k_;
        for_each_tile(tile.count, kFirstFloatTile, [&](int64_t first, int index, int) {
            t.x = rows.x + (tile.row + first) * k_;
            const int64_t wide = kernels.wide_panels[index];
            for (int64_t p = panels.begin; p < panels.end;) {
                const int64_t width = p + wide <= panels.end ? wide : 1;
                run((width > 1 ? kernels.wide : kernels.tile)[type][index], p, width, first);
                p += width;
            }
        });
        return;
    }
    const LinearQuantKernels& kernels = select_linear_quant_kernels(context.isa);
    const size_t quant_type = type - static_cast<size_t>(WeightType::Q8_0);
    const int64_t correction_bytes = 4 * corrections_[static_cast<size_t>(part.correction)].num_sums;
    t.steps = k_ / kStep;
    for (int64_t p = panels.begin; p < panels.end;) {
        const int64_t width = p + kernels.wide_panels <= panels.end ? kernels.wide_panels : 1;
        for_each_tile(tile.count, 0, [&](int64_t first, int index, int) {
            const int64_t row = tile.row + first;
            t.q = rows.q + row * k_;
            t.scale = rows.scale + row * t.steps;
            t.correction = rows.corrections[part.correction] + row * t.steps * correction_bytes;
            run((width > 1 ? kernels.wide : kernels.tile)[quant_type][index], p, width, first);
        });
        p += width;
    }
}

void run_gated(Context& context, const GatedMaps& maps, const RowSource& x, int64_t rows, float* out) {
    const Linear& gate_up = maps.gate_up;
    const Linear& down = maps.down;
    const int64_t block = std::min(rows, gate_up.rows_in_block());
    const int64_t down_block = down.rows_in_block();
    const size_t buffers = buffer_bytes(context, gate_up.k());
    const size_t first_layout = gate_up.layout_bytes(block);
    uint8_t* memory = linear_scratch(buffers + first_layout + down.layout_bytes(block));
    for (int64_t row = 0; row < rows; row += block) {
        const int64_t count = std::min(block, rows - row);
        const LinearRows in = gate_up.place(memory + buffers, count);
        const LinearRows between = down.place(memory + buffers + first_layout, count);
        gate_up.lay_out(context, x, row, in, reinterpret_cast<float*>(memory));
        gate_up.multiply_gated(context, in, maps.gate_up_bias, down, between);
        for (int64_t r = 0; r < count; r += down_block) {
            down.multiply(context, down.some(between, r, std::min(down_block, count - r)), maps.down_bias,
                          out + (row + r) * down.num_outputs());
        }
    }
}

}  // namespace octavo
