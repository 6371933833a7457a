// Recording of programs; program_run.cpp runs them.
#include "program.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace octavo {
namespace {

template <class T>
std::string text(T n) {
    return std::to_string(n);
}

[[noreturn]] void refuse(const char* op, const std::string& message) {
    throw std::invalid_argument(std::string(op) + ": " + message);
}

void expect_width(const char* op, const char* what, int64_t expected, int64_t got) {
    if (got != expected) refuse(op, std::string("expected ") + what + " of width " + text(expected) + ", got " + text(got));
}

}  // namespace

const Program::Value& Program::value(int id, const char* op) const {
    if (id < 0 || id >= static_cast<int>(values_.size())) refuse(op, "no value " + text(id) + " in this program");
    return values_[static_cast<size_t>(id)];
}

const Program::Value& Program::step_value(int id, int64_t width, const char* op) const {
    const Value& v = value(id, op);
    if (v.rows != Rows::step) refuse(op, "expected all rows of the step, got those that get logits");
    expect_width(op, "rows", width, v.width);
    return v;
}

int Program::add(Instruction instruction, int64_t width, Rows rows) {
    if (result_ != kNone) throw std::invalid_argument("the program is finished: record another one");
    instruction.result = static_cast<int>(values_.size());
    values_.push_back({width, rows});
    code_.push_back(std::move(instruction));
    return code_.back().result;
}

int Program::embedding(WeightType type, const uint8_t* table, int64_t num_rows, int64_t width) {
    return add({EmbeddingOp{type, table, num_rows}}, width, Rows::step);
}

int Program::rms_norm(int x, const float* weight, int64_t size, float eps, std::optional<int> residual) {
    const Value from = value(x, "rms_norm");
    expect_width("rms_norm", "a weight", from.width, size);
    if (residual) {
        const Value& sum = value(*residual, "rms_norm");
        expect_width("rms_norm", "a residual", from.width, sum.width);
        if (sum.rows != from.rows || *residual == x) refuse("rms_norm", "expected a residual for the same rows as x");
    }
    return add({NormOp{weight, eps}, x, residual.value_or(kNone)}, from.width, from.rows);
}

int Program::linear(int x, const Linear& map, const float* bias) {
    const Value from = value(x, "linear");
    expect_width("linear", "x", map.k(), from.width);
    return add({LinearOp{&map, bias, std::nullopt}, x}, map.num_outputs(), from.rows);
}

void Program::set_kv_shape(int num_kv_heads, int head_dim, const char* op) {
    if (num_kv_heads < 1 || head_dim < 8 || head_dim % 8 != 0) {
        refuse(op, "expected KV heads of a size that is a multiple of 8, got " + text(num_kv_heads) + " of " +
                       text(head_dim));
    }
    if (num_kv_heads_ != 0 && (num_kv_heads != num_kv_heads_ || head_dim != head_dim_)) {
        refuse(op, "expected the KV heads of the other layers, " + text(num_kv_heads_) + " of size " + text(head_dim_) +
                       ", got " + text(num_kv_heads) + " of size " + text(head_dim));
    }
    num_kv_heads_ = num_kv_heads;
    head_dim_ = head_dim;
}

int Program::rope_and_store(int qkv, const RopeTask& task, int64_t layer, int64_t num_positions) {
    const int64_t dim = task.head_dim;
    step_value(qkv, (task.num_heads + 2 * static_cast<int64_t>(task.num_kv_heads)) * dim, "rope_and_store");
    set_kv_shape(task.num_kv_heads, task.head_dim, "rope_and_store");
    if (layer < 0) refuse("rope_and_store", "expected a layer of 0 or more, got " + text(layer));
    num_layers_ = std::max(num_layers_, layer + 1);
    return add({RopeOp{task, layer, num_positions}, qkv}, task.num_heads * dim, Rows::step);
}

int Program::paged_attention(int q, const AttentionLayer& layer, int num_kv_heads, int head_dim) {
    const int num_heads = layer.num_heads;
    const int64_t width = static_cast<int64_t>(num_heads) * head_dim;
    step_value(q, width, "paged_attention");
    set_kv_shape(num_kv_heads, head_dim, "paged_attention");
    if (num_heads < 1 || num_heads % num_kv_heads != 0) {
        refuse("paged_attention", "expected query heads a multiple of the KV heads, got " + text(num_heads) + " and " +
                                      text(num_kv_heads));
    }
    if (layer.layer < 0) refuse("paged_attention", "expected a layer of 0 or more, got " + text(layer.layer));
    num_layers_ = std::max(num_layers_, layer.layer + 1);
    return add({AttentionOp{layer}, q}, width, Rows::step);
}

int Program::silu_mul(int gate_up) {
    const Value from = value(gate_up, "silu_mul");
    if (from.width % 2 != 0) refuse("silu_mul", "expected an even width, got " + text(from.width));
    return add({SiluOp{}, gate_up}, from.width / 2, from.rows);
}

int Program::take_logits_rows(int x) {
    const Value from = value(x, "take_rows");
    return add({TakeRowsOp{}, step_value(x, from.width, "take_rows").rows == Rows::step ? x : kNone}, from.width,
               Rows::logits);
}

void Program::finish(int result) {
    if (result_ != kNone) throw std::invalid_argument("the program is finished already");
    if (value(result, "finish").rows != Rows::logits) {
        refuse("finish", "expected a result for the rows that get logits, got one for all rows: use take_rows");
    }
    result_ = result;
    skip_rows();
    fuse_norms();
    fuse_gates();
    assign_buffers();
}

int64_t Program::width() const { return result_ == kNone ? 0 : values_[static_cast<size_t>(result_)].width; }

// Whether the second of two neighbouring instructions is the only one to read the first one's result.
bool Program::feeds(size_t first, size_t second) const {
    const int id = code_[first].result;
    if (id == result_ || code_[second].x != id) return false;
    for (size_t i = 0; i < code_.size(); ++i) {
        if (code_[i].residual == id || (code_[i].x == id && i != second)) return false;
    }
    return true;
}

// Attention of which only the rows that get logits are used: others need not be computed.
void Program::skip_rows() {
    for (Instruction& i : code_) {
        auto* attention = std::get_if<AttentionOp>(&i.op);
        if (attention == nullptr || i.result == result_) continue;
        attention->only_some_rows = std::all_of(code_.begin(), code_.end(), [&](const Instruction& user) {
            return user.residual != i.result && (user.x != i.result || std::holds_alternative<TakeRowsOp>(user.op));
        });
    }
}

// norm, linear -> one instruction: the normed rows go straight into the map's layout.
void Program::fuse_norms() {
    for (size_t i = 0; i + 1 < code_.size(); ++i) {
        const auto* norm = std::get_if<NormOp>(&code_[i].op);
        auto* linear = std::get_if<LinearOp>(&code_[i + 1].op);
        if (norm == nullptr || linear == nullptr || !feeds(i, i + 1)) continue;
        linear->norm = *norm;
        code_[i + 1].x = code_[i].x;
        code_[i + 1].residual = code_[i].residual;
        code_.erase(code_.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

// linear, silu_mul, linear -> one instruction: the gated halves go straight into the second map's layout.
void Program::fuse_gates() {
    for (size_t i = 0; i + 2 < code_.size(); ++i) {
        const auto* gate_up = std::get_if<LinearOp>(&code_[i].op);
        const auto* down = std::get_if<LinearOp>(&code_[i + 2].op);
        if (gate_up == nullptr || down == nullptr || !std::holds_alternative<SiluOp>(code_[i + 1].op)) continue;
        if (down->norm || !feeds(i, i + 1) || !feeds(i + 1, i + 2) || !gate_up->map->gates(*down->map)) continue;
        LinearOp both = *gate_up;
        both.down = down->map;
        both.down_bias = down->bias;
        code_[i].op = both;
        code_[i].result = code_[i + 2].result;
        const auto at = code_.begin() + static_cast<std::ptrdiff_t>(i);
        code_.erase(at + 1, at + 3);
    }
}

// A buffer for each value, shared by values that are not needed at the same time.
void Program::assign_buffers() {
    for (size_t i = 0; i < code_.size(); ++i) {
        for (const int id : {code_[i].x, code_[i].residual, code_[i].result}) {
            if (id != kNone) values_[static_cast<size_t>(id)].last_use = i;
        }
    }
    std::vector<int> free;
    for (size_t i = 0; i < code_.size(); ++i) {
        Value& result = values_[static_cast<size_t>(code_[i].result)];
        if (code_[i].result != result_) {  // which goes to the caller's array
            if (free.empty()) {
                free.push_back(static_cast<int>(buffer_widths_.size()));
                buffer_widths_.push_back(0);
            }
            // The free buffer whose width is nearest.
            const auto misfit = [&](int buffer) {
                return std::abs(buffer_widths_[static_cast<size_t>(buffer)] - result.width);
            };
            const auto best = std::min_element(free.begin(), free.end(),
                                               [&](int a, int b) { return misfit(a) < misfit(b); });
            result.buffer = *best;
            free.erase(best);
            int64_t& width = buffer_widths_[static_cast<size_t>(result.buffer)];
            width = std::max(width, result.width);
        }
        for (const int id : {code_[i].x, code_[i].residual, code_[i].result}) {
            if (id == kNone) continue;
            Value& v = values_[static_cast<size_t>(id)];
            if (v.last_use == i && v.buffer >= 0) free.push_back(v.buffer);
        }
    }
    offsets_.resize(buffer_widths_.size());
}

}  // namespace octavo
