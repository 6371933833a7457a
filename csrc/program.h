// A model's forward pass, recorded once and then run as one call: instructions over numbered values, with all that does
// not change from step to step bound to them.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "aligned_buffer.h"
#include "attention.h"
#include "context.h"
#include "elementwise.h"
#include "kv_memory.h"
#include "linear.h"
#include "weight_types.h"

namespace octavo {

// What changes from step to step (Batch of ops/base.py).
struct StepInputs {
    const int32_t* token_ids;
    const int32_t* positions;
    const int32_t* slots;
    int64_t num_rows;
    const AttentionPlan* attention;
    const int32_t* logits_rows;
    int64_t num_logits_rows;
    KvMemory kv;
};

struct EmbeddingOp {
    WeightType type;
    const uint8_t* table;
    int64_t num_rows;
};

struct NormOp {
    const float* weight;
    float eps;
};

struct LinearOp {
    const Linear* map;
    const float* bias;
    std::optional<NormOp> norm;       // of the input, before the map
    const Linear* down = nullptr;     // the gated halves of `map` go through this one
    const float* down_bias = nullptr;
};

struct RopeOp {
    RopeTask task;  // the fields that do not change
    int64_t layer;
    int64_t num_positions;
};

using AttentionOp = AttentionLayer;

struct SiluOp {};
struct TakeRowsOp {};

// Recorded by the functions named like the ops of ops/base.py, each of which gives the number of its result. Arrays and
// maps are not copied: they have to live as long as the program. Recording functions throw std::invalid_argument for
// values or sizes that do not fit together.
class Program {
public:
    explicit Program(Context& context) : context_(context) {}

    int embedding(WeightType type, const uint8_t* table, int64_t num_rows, int64_t width);
    int rms_norm(int x, const float* weight, int64_t size, float eps, std::optional<int> residual);
    int linear(int x, const Linear& map, const float* bias);
    int rope_and_store(int qkv, const RopeTask& task, int64_t layer, int64_t num_positions);
    int paged_attention(int q, const AttentionLayer& layer, int num_kv_heads, int head_dim);
    int silu_mul(int gate_up);
    int take_logits_rows(int x);

    // Ends the recording: `result`, a value of the rows that get logits, is what `run` gives.
    void finish(int result);

    int64_t width() const;       // of the result
    int num_kv_heads() const { return num_kv_heads_; }
    int head_dim() const { return head_dim_; }
    int num_instructions() const { return static_cast<int>(code_.size()); }
    int num_buffers() const { return static_cast<int>(buffer_widths_.size()); }

    // out [num_logits_rows, width()]. Throws std::invalid_argument or, for a token id, std::out_of_range, for inputs that
    // do not fit together or the program; it can run again then. Calls from several threads take turns.
    void run(const StepInputs& inputs, float* out);

private:
    enum class Rows { step, logits };

    struct Value {
        int64_t width;
        Rows rows;
        int buffer = -1;
        size_t last_use = 0;  // instruction
    };

    static constexpr int kNone = -1;

    struct Instruction {
        std::variant<EmbeddingOp, NormOp, LinearOp, RopeOp, AttentionOp, SiluOp, TakeRowsOp> op;
        int x = kNone;
        int residual = kNone;
        int result = kNone;
    };

    struct Frame;  // a run

    const Value& value(int id, const char* op) const;
    const Value& step_value(int id, int64_t width, const char* op) const;
    void set_kv_shape(int num_kv_heads, int head_dim, const char* op);
    int add(Instruction instruction, int64_t width, Rows rows);
    void skip_rows();
    void fuse_norms();
    void fuse_gates();
    bool feeds(size_t first, size_t second) const;
    void assign_buffers();
    void check(const StepInputs& inputs) const;

    Context& context_;
    std::vector<Value> values_;
    std::vector<Instruction> code_;
    std::vector<int64_t> buffer_widths_;
    std::vector<int64_t> offsets_;  // of the buffers in memory_, in this run
    int result_ = kNone;
    int num_kv_heads_ = 0, head_dim_ = 0;
    int64_t num_layers_ = 0;
    AlignedBuffer memory_;
    std::mutex mutex_;
};

}  // namespace octavo
