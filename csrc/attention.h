// Paged attention of a step: what is planned once, and the call for each layer.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "context.h"
#include "kv_memory.h"

namespace octavo {

// Neighbouring queries of one sequence against one KV head.
struct AttentionUnit {
    int32_t seq, first_row, num_queries, first_position, kv_head;
    int32_t num_parts;
    int64_t partials;  // offset in rows of partial results, or -1: folded where it is computed
};

struct AttentionItem {
    int32_t unit, part_begin, part_end;
};

// Who does what; the results do not depend on it.
struct AttentionWork {
    std::vector<AttentionUnit> units;
    std::vector<AttentionItem> items;
    std::vector<int64_t> chunks;  // items of chunk c: chunks[c] .. chunks[c + 1]
    std::vector<int32_t> split_units;
    int64_t partial_rows = 0;
    int32_t max_rows = 0;  // rows of the largest unit
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
    const int32_t* tiles_of(int seq) const { return tiles_.data() + tile_starts_[static_cast<size_t>(seq)]; }

    // Made on first use, then kept.
    const AttentionWork& work(int num_heads, int num_kv_heads, int num_threads) const;

private:
    struct Kept {
        int num_heads, num_kv_heads, num_threads;
        std::unique_ptr<AttentionWork> work;
    };

    void check_sequence(size_t seq) const;
    AttentionWork make_work(int num_heads, int num_kv_heads, int num_threads) const;
    void add_units(AttentionWork& work, int seq, int num_kv_heads, int queries_per_unit) const;

    std::vector<int32_t> row_starts_, context_lens_, tiles_, tile_starts_;
    int32_t max_tile_ = -1;
    mutable std::mutex mutex_;
    mutable std::vector<Kept> kept_;
};

// q and out: [plan.num_rows(), num_heads * head_dim]. Throws std::invalid_argument for heads that do
// not divide, a head size that is not a multiple of 8, or a layer or tile outside the memory.
void paged_attention(Context& context, const AttentionPlan& plan, const KvMemory& kv, int64_t layer, int num_heads,
                     float scale, const float* q, float* out);

}  // namespace octavo
