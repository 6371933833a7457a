// Paged attention of a step: what is planned once, and the call for each layer.
//
// Work is cut into items: some partitions (attention_kernels.h) of some queries against one KV head. A unit is
// neighbouring queries of one sequence; where several sequences hold the same tiles, an item takes the units of
// all of them, so that the tiles are read once. A unit that is in several items leaves a partial result for each
// partition, and these are merged in order once all items are done.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "aligned_buffer.h"
#include "context.h"
#include "kv_memory.h"

namespace octavo {

// Neighbouring queries of one sequence against one KV head.
struct AttentionUnit {
    int32_t seq, first_row, num_queries, first_position, kv_head;
    int32_t part_begin, part_end;  // partitions that any of its queries sees
    int32_t shared_end;  // those before this one are computed for other sequences too
    int64_t results;     // index in AttentionWork::results of part_begin, or -1: folded where it is computed
};

// One partition for all queries of units that have its tiles in common.
struct SharedItem {
    int32_t seq;  // any of the sequences
    int32_t part, kv_head;
    int32_t first_query, num_queries;  // in AttentionWork::shared_queries
    bool head_done;  // what comes next reads other keys
    int64_t result;  // row of partial results
};

struct AttentionItem {
    int32_t shared;  // of shared_items, or -1: partitions of one unit
    int32_t unit, part_begin, part_end;
};

// Who does what; the results do not depend on it.
struct AttentionWork {
    std::vector<AttentionUnit> units;
    std::vector<SharedItem> shared_items;
    std::vector<int32_t> shared_queries;  // rows of q
    std::vector<AttentionItem> items;
    std::vector<int64_t> chunks;  // items of chunk c: chunks[c] .. chunks[c + 1]
    std::vector<int32_t> merged_units;
    std::vector<int64_t> merge_chunks;  // of merged_units, likewise
    std::vector<int64_t> results;       // rows of partial results: where each partition of a unit begins
    int64_t partial_rows = 0;
    int32_t max_rows = 0;  // rows of the largest item
    int num_threads = 1;   // of the pool
};

// What layers of a step may differ in: each kind gets work lists of its own.
struct AttentionKind {
    int num_heads, num_kv_heads, head_dim;
    int window;  // tokens that a query sees, itself the last; or kNoWindow
    std::optional<std::vector<int32_t>> rows = std::nullopt;  // in rising order: only these are computed

    bool operator==(const AttentionKind& other) const {
        return num_heads == other.num_heads && num_kv_heads == other.num_kv_heads && head_dim == other.head_dim &&
               window == other.window && rows == other.rows;
    }
};

// The sequences of a step (AttentionInputs of ops/base.py), checked, and the work lists made for them.
class AttentionPlan {
public:
    // Throws std::invalid_argument, naming what was expected and what came, unless the arrays fit together.
    AttentionPlan(std::vector<int32_t> row_starts, std::vector<int32_t> context_lens, std::vector<int32_t> tiles,
                  std::vector<int32_t> tile_starts);

    int num_rows() const { return row_starts_.back(); }
    int num_seqs() const { return static_cast<int>(context_lens_.size()); }
    int max_tile() const { return max_tile_; }
    int longest_context() const { return longest_context_; }
    int rows_of(int seq) const {
        const size_t s = static_cast<size_t>(seq);
        return row_starts_[s + 1] - row_starts_[s];
    }
    int first_row_of(int seq) const { return row_starts_[static_cast<size_t>(seq)]; }
    int context_of(int seq) const { return context_lens_[static_cast<size_t>(seq)]; }
    const int32_t* tiles_of(int seq) const { return tiles_.data() + tile_starts_[static_cast<size_t>(seq)]; }

    // Of the calls made so far; 0 before the first.
    int64_t num_shared_items() const;

    // The work lists for a kind of layer, with memory for its partial results and for each thread. Made on first
    // use, then kept for the other layers. Held while a call runs: calls on one plan take turns.
    struct Held {
        std::unique_lock<std::mutex> lock;
        const AttentionWork* work;
        float* partials;
        float* scratch;
        int64_t scratch_floats;  // of a thread
    };
    // Throws std::bad_alloc where there is no memory.
    Held hold(const AttentionKind& kind, int num_threads) const;

private:
    struct Kept {
        AttentionKind kind;
        int num_threads;
        AttentionWork work;
        AlignedBuffer memory;
        int64_t partial_floats, scratch_floats;
    };

    void check_sequence(size_t seq) const;

    std::vector<int32_t> row_starts_, context_lens_, tiles_, tile_starts_;
    int32_t max_tile_ = -1, longest_context_ = 0;
    mutable std::mutex mutex_;
    mutable std::vector<std::unique_ptr<Kept>> kept_;
};

AttentionWork make_attention_work(const AttentionPlan& plan, const AttentionKind& kind, int num_threads);

// What does not change from step to step. window: see AttentionKind; anything from kNoWindow on is none.
struct AttentionLayer {
    int64_t layer;
    int num_heads;
    float scale;
    int64_t window;
    bool only_some_rows = false;
};

// A window as it is given to the ops, or none. Throws std::invalid_argument for one of less than a token.
int64_t checked_window(std::optional<int64_t> window);

// q and out: [plan.num_rows(), num_heads * head_dim]; with layer.only_some_rows, rows of out other than `rows` (in any
// order, below plan.num_rows()) are left as they are. Throws std::invalid_argument for heads that do not divide, a head size that is not a multiple of 8, or a layer or tile outside the memory, and std::bad_alloc.
void paged_attention(Context& context, const AttentionPlan& plan, const KvMemory& kv, const AttentionLayer& layer,
                     const float* q, float* out, std::vector<int32_t> rows = {});

}  // namespace octavo
