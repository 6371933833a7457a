// Runs of programs.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "embedding.h"
#include "linear_gated.h"
#include "program.h"

namespace octavo {
namespace {

// Rows of x [.., size] that become their norms (of x + residual, which is kept) when they are wanted.
class NormRows : public RowSource {
public:
    NormRows(const Context& context, const NormTask& task) : kernels_(select_elementwise_kernels(context.isa)), task_(task) {}

    const float* rows(int64_t row, int count, float* buffer) const override {
        NormTask t = task_;
        t.x += row * t.size;
        if (t.residual != nullptr) t.residual += row * t.size;
        t.out = buffer;
        kernels_.rms_norm(t, 0, count);
        return buffer;
    }

private:
    const ElementwiseKernels& kernels_;
    NormTask task_;
};

std::string text(int64_t n) { return std::to_string(n); }

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument("program: " + message); }

}  // namespace

// One run: where the values of its instructions lie.
struct Program::Frame {
    Context& context;
    const StepInputs& in;
    const std::vector<Value>& values;
    const std::vector<int64_t>& offsets;
    float* memory;
    float* out;

    float* at(int id) const {
        if (id == kNone) return nullptr;
        const int buffer = values[static_cast<size_t>(id)].buffer;
        return buffer < 0 ? out : memory + offsets[static_cast<size_t>(buffer)];
    }
    int64_t width(int id) const { return values[static_cast<size_t>(id)].width; }
    int64_t rows(int id) const {
        return values[static_cast<size_t>(id)].rows == Rows::step ? in.num_rows : in.num_logits_rows;
    }

    NormTask norm_task(const NormOp& op, const Instruction& i) const {
        return {at(i.x), op.weight, at(i.residual), nullptr, width(i.x), op.eps};
    }

    void run(const EmbeddingOp& op, const Instruction& i) const {
        look_up(op.type, op.table, op.num_rows, width(i.result), in.token_ids, in.num_rows, at(i.result), context.pool);
    }

    void run(const NormOp& op, const Instruction& i) const {
        NormTask task = norm_task(op, i);
        task.out = at(i.result);
        octavo::rms_norm(context, task, rows(i.x));
    }

    void run(const LinearOp& op, const Instruction& i) const {
        if (op.norm) {
            run_linear(op, NormRows(context, norm_task(*op.norm, i)), i);
        } else {
            run_linear(op, StoredRows(at(i.x), width(i.x)), i);
        }
    }

    void run_linear(const LinearOp& op, const RowSource& x, const Instruction& i) const {
        if (op.down == nullptr) {
            op.map->run(context, x, rows(i.x), op.bias, at(i.result));
        } else {
            run_gated(context, {*op.map, op.bias, *op.down, op.down_bias}, x, rows(i.x), at(i.result));
        }
    }

    void run(const RopeOp& op, const Instruction& i) const {
        RopeTask task = op.task;
        task.qkv = at(i.x);
        task.q_out = at(i.result);
        task.positions = in.positions;
        task.slots = in.slots;
        octavo::rope_and_store(context, task, in.kv, op.layer, in.num_rows, op.num_positions);
    }

    void run(const AttentionOp& op, const Instruction& i) const {
        std::vector<int32_t> rows;
        if (op.only_some_rows) rows.assign(in.logits_rows, in.logits_rows + in.num_logits_rows);
        octavo::paged_attention(context, *in.attention, in.kv, op, at(i.x), at(i.result), std::move(rows));
    }

    void run(const SiluOp&, const Instruction& i) const {
        octavo::silu_mul(context, at(i.x), rows(i.x), width(i.result), at(i.result));
    }

    void run(const TakeRowsOp&, const Instruction& i) const {
        const int64_t n = width(i.x);
        const float* from = at(i.x);
        float* to = at(i.result);
        for (int64_t r = 0; r < in.num_logits_rows; ++r) {
            std::memcpy(to + r * n, from + in.logits_rows[r] * n, static_cast<size_t>(n) * sizeof(float));
        }
    }
};

void Program::check(const StepInputs& in) const {
    if (result_ == kNone) refuse("not finished yet");
    if (in.attention->num_rows() != in.num_rows) {
        refuse("expected an attention plan of " + text(in.num_rows) + " rows, got " + text(in.attention->num_rows()));
    }
    if (num_layers_ > 0 && in.attention->max_tile() >= in.kv.num_tiles) {
        refuse("expected tile ids below " + text(in.kv.num_tiles) + " (tiles in KV memory), got " +
               text(in.attention->max_tile()));
    }
    if (in.kv.num_layers < num_layers_) {
        refuse("expected KV memory of " + text(num_layers_) + " layers, got " + text(in.kv.num_layers));
    }
    for (int64_t i = 0; i < in.num_logits_rows; ++i) {
        if (in.logits_rows[i] >= 0 && in.logits_rows[i] < in.num_rows) continue;
        refuse("expected logits_rows from 0 to " + text(in.num_rows - 1) + ", got " + text(in.logits_rows[i]) +
               " at index " + text(i));
    }
}

void Program::run(const StepInputs& in, float* out) {
    const std::lock_guard<std::mutex> turn(mutex_);
    check(in);
    const int64_t rows = std::max(in.num_rows, in.num_logits_rows);
    int64_t size = 0;
    for (size_t i = 0; i < offsets_.size(); ++i) {
        offsets_[i] = size;
        size += (rows * buffer_widths_[i] + 15) / 16 * 16;
    }
    const size_t bytes = static_cast<size_t>(size) * sizeof(float);
    if (memory_.size() < bytes) memory_ = AlignedBuffer(bytes + bytes / 4);
    const Frame frame{context_, in, values_, offsets_, reinterpret_cast<float*>(memory_.data()), out};
    for (const Instruction& i : code_) {
        std::visit([&](const auto& op) { frame.run(op, i); }, i.op);
    }
}

}  // namespace octavo
