#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "attention.h"
#include "attention_kernels.h"

namespace octavo {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument("attention: " + message); }

template <class T>
std::string text(T n) {
    return std::to_string(n);
}

// To whole cache lines.
int64_t round_up(int64_t floats) { return (floats + 15) / 16 * 16; }

}  // namespace

AttentionPlan::AttentionPlan(std::vector<int32_t> row_starts, std::vector<int32_t> context_lens,
                             std::vector<int32_t> tiles, std::vector<int32_t> tile_starts)
    : row_starts_(std::move(row_starts)),
      context_lens_(std::move(context_lens)),
      tiles_(std::move(tiles)),
      tile_starts_(std::move(tile_starts)) {
    const size_t n = context_lens_.size();
    if (row_starts_.size() != n + 1) {
        refuse("expected row_starts of " + text(n + 1) + " entries (sequences + 1), got " + text(row_starts_.size()));
    }
    if (tile_starts_.size() != n + 1) {
        refuse("expected tile_starts of " + text(n + 1) + " entries (sequences + 1), got " + text(tile_starts_.size()));
    }
    if (row_starts_[0] != 0) refuse("expected row_starts[0] = 0, got " + text(row_starts_[0]));
    if (tile_starts_[0] != 0) refuse("expected tile_starts[0] = 0, got " + text(tile_starts_[0]));
    for (size_t s = 0; s < n; ++s) {
        check_sequence(s);
        longest_context_ = std::max(longest_context_, context_lens_[s]);
    }
    if (static_cast<int64_t>(tiles_.size()) != tile_starts_[n]) {
        refuse("expected " + text(tile_starts_[n]) + " tiles (the last of tile_starts), got " + text(tiles_.size()));
    }
    for (const int32_t tile : tiles_) {
        if (tile < 0) refuse("expected tile ids of 0 or more, got " + text(tile));
        max_tile_ = std::max(max_tile_, tile);
    }
}

void AttentionPlan::check_sequence(size_t s) const {
    const int64_t rows = static_cast<int64_t>(row_starts_[s + 1]) - row_starts_[s];
    const int64_t held = static_cast<int64_t>(tile_starts_[s + 1]) - tile_starts_[s];
    const int64_t context = context_lens_[s], needed = (context + kTile - 1) / kTile;
    if (rows < 0) refuse("expected row_starts in rising order, got " + text(rows) + " rows of sequence " + text(s));
    if (context < rows) {
        refuse("expected context_lens of sequence " + text(s) + " to cover its " + text(rows) + " rows, got " +
               text(context));
    }
    if (held != needed) {
        refuse("expected " + text(needed) + " tiles of sequence " + text(s) + " (context " + text(context) + "), got " +
               text(held));
    }
}

int64_t AttentionPlan::num_shared_items() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    int64_t n = 0;
    for (const auto& k : kept_) n += static_cast<int64_t>(k->work.shared_items.size());
    return n;
}

AttentionPlan::Held AttentionPlan::hold(const AttentionKind& kind, int num_threads) const {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto fits = [&](const std::unique_ptr<Kept>& k) { return k->kind == kind && k->num_threads == num_threads; };
    auto found = std::find_if(kept_.begin(), kept_.end(), fits);
    if (found == kept_.end()) {
        auto made = std::make_unique<Kept>();
        made->kind = kind;
        made->num_threads = num_threads;
        made->work = make_attention_work(*this, kind, num_threads);
        made->partial_floats = round_up(made->work.partial_rows * partial_stride(kind.head_dim));
        made->scratch_floats = round_up(attention_scratch_floats(made->work.max_rows, kind.num_heads / kind.num_kv_heads, kind.head_dim));
        const int64_t floats = made->partial_floats + made->scratch_floats * num_threads;
        made->memory = AlignedBuffer(static_cast<size_t>(floats) * sizeof(float));
        kept_.push_back(std::move(made));
        found = kept_.end() - 1;
    }
    const Kept& k = **found;
    float* memory = reinterpret_cast<float*>(k.memory.data());
    return {std::move(lock), &k.work, memory, memory + k.partial_floats, k.scratch_floats};
}

}  // namespace octavo
