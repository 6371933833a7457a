#include "attention.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "attention_kernels.h"

namespace octavo {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument("attention: " + message); }

template <class T>
std::string text(T n) {
    return std::to_string(n);
}

constexpr float kLog2E = 1.44269504f;

// What the items of one call have in common.
struct Call {
    const AttentionPlan& plan;
    const AttentionWork& work;
    const KvMemory& kv;
    const AttentionLayer& layer;
    int window, group;
    const float* q;
    float* out;
    float* partials;

    AttentionTask task_for(int seq, int kv_head, bool head_done) const {
        const int64_t dim = kv.head_dim;
        AttentionTask t{};
        t.row_stride = kv.num_kv_heads * group * dim;
        t.q = q + kv_head * group * dim;
        t.group = group;
        t.head_dim = static_cast<int>(dim);
        t.window = window;
        t.scale = layer.scale * kLog2E;
        t.keys = static_cast<const char*>(kv.layer(layer.layer)) + kv_head * dim * kTile * (kv.half ? 2 : 4);
        t.tile_stride = kv.tile_stride();
        t.value_offset = kv.plane();
        t.next_head = head_done && kv_head + 1 < kv.num_kv_heads ? dim * kTile : 0;
        t.tiles = plan.tiles_of(seq);
        t.partials = partials;
        return t;
    }

    AttentionTask task(const AttentionUnit& u, int part_begin, int part_end) const {
        AttentionTask t = task_for(u.seq, u.kv_head, /*head_done=*/true);
        t.q += u.first_row * t.row_stride;
        t.out = out + (t.q - q);
        t.num_queries = u.num_queries;
        t.first_position = u.first_position;
        t.part_begin = part_begin;
        t.part_end = part_end;
        if (u.results >= 0) t.results = work.results.data() + u.results + (part_begin - u.part_begin);
        return t;
    }

    AttentionTask task(const SharedItem& item) const {
        AttentionTask t = task_for(item.seq, item.kv_head, item.head_done);
        t.query_rows = work.shared_queries.data() + item.first_query;
        t.num_queries = item.num_queries;
        t.first_position = (item.part + 1) * kPartition - 1;  // at least: they all see the whole partition
        t.window = kNoWindow;
        t.part_begin = item.part;
        t.part_end = item.part + 1;
        t.results = &item.result;
        return t;
    }

    AttentionTask task(const AttentionItem& item) const {
        return item.shared >= 0
                   ? task(work.shared_items[static_cast<size_t>(item.shared)])
                   : task(work.units[static_cast<size_t>(item.unit)], item.part_begin, item.part_end);
    }
};

// The different ones, in rising order; nothing if that is all of them.
std::optional<std::vector<int32_t>> rising(std::vector<int32_t> rows, int num_rows) {
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    if (static_cast<int>(rows.size()) == num_rows) return std::nullopt;
    return rows;
}

void check_call(const AttentionPlan& plan, const KvMemory& kv, int64_t layer, int num_heads) {
    if (kv.head_dim < 8 || kv.head_dim % 8 != 0) {
        refuse("expected a head size that is a multiple of 8, got " + text(kv.head_dim));
    }
    if (kv.num_kv_heads < 1 || num_heads < 1 || num_heads % kv.num_kv_heads != 0) {
        refuse("expected query heads a multiple of the KV heads, got " + text(num_heads) + " and " +
               text(kv.num_kv_heads));
    }
    if (layer < 0 || layer >= kv.num_layers) {
        refuse("expected a layer below " + text(kv.num_layers) + ", got " + text(layer));
    }
    if (plan.max_tile() >= kv.num_tiles) {
        refuse("expected tile ids below " + text(kv.num_tiles) + " (tiles in KV memory), got " + text(plan.max_tile()));
    }
}

}  // namespace

int64_t checked_window(std::optional<int64_t> window) {
    if (window && *window < 1) refuse("expected a window of 1 token or more, or none, got " + text(*window));
    return window.value_or(kNoWindow);
}

void paged_attention(Context& context, const AttentionPlan& plan, const KvMemory& kv, const AttentionLayer& layer,
                     const float* q, float* out, std::vector<int32_t> rows) {
    check_call(plan, kv, layer.layer, layer.num_heads);
    const AttentionKernels& kernels = select_attention_kernels_bf16(context.isa);
    const int num_kv_heads = static_cast<int>(kv.num_kv_heads);
    const int window = layer.window < plan.longest_context() ? static_cast<int>(layer.window) : kNoWindow;
    AttentionKind kind{layer.num_heads, num_kv_heads, static_cast<int>(kv.head_dim), window};
    if (layer.only_some_rows) kind.rows = rising(std::move(rows), plan.num_rows());
    const AttentionPlan::Held held = plan.hold(kind, context.pool.num_threads());
    const AttentionWork& work = *held.work;
    const Call call{plan, work, kv, layer, window, layer.num_heads / num_kv_heads, q, out, held.partials};
    const auto attend = kv.half ? kernels.attend_f16 : kernels.attend_f32;

    context.pool.parallel_for(static_cast<int64_t>(work.chunks.size()) - 1, [&](int64_t chunk, int thread) {
        float* scratch = held.scratch + thread * held.scratch_floats;
        const size_t c = static_cast<size_t>(chunk);
        for (int64_t i = work.chunks[c]; i < work.chunks[c + 1]; ++i) {
            attend(call.task(work.items[static_cast<size_t>(i)]), scratch);
        }
    });
    context.pool.parallel_for(static_cast<int64_t>(work.merge_chunks.size()) - 1, [&](int64_t chunk, int) {
        const size_t c = static_cast<size_t>(chunk);
        for (int64_t i = work.merge_chunks[c]; i < work.merge_chunks[c + 1]; ++i) {
            const AttentionUnit& unit = work.units[static_cast<size_t>(work.merged_units[static_cast<size_t>(i)])];
            kernels.merge(call.task(unit, unit.part_begin, unit.part_end));
        }
    });
}

}  // namespace octavo
