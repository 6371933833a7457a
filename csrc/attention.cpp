#include "attention.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "attention_kernels.h"

namespace octavo {
namespace {

// Rows of a unit: enough that a loaded key or value is used many times, few enough that their scores stay in cache.
constexpr int kUnitRows = 24;

// Query rows times tokens below which other threads are not woken.
constexpr int64_t kAloneBelow = 1000;

// Rows of partial results from which on they are merged on all threads.
constexpr int64_t kMergeRows = 1000;

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument("attention: " + message); }

template <class T>
std::string text(T n) {
    return std::to_string(n);
}

int32_t num_parts(int32_t last_position) { return last_position / kPartition + 1; }

// Query rows times tokens.
int64_t unit_cost(const AttentionUnit& u, int group) {
    return static_cast<int64_t>(u.num_queries) * group * (u.first_position + u.num_queries);
}

int64_t item_cost(const AttentionUnit& u, const AttentionItem& item, int group) {
    const int64_t begin = static_cast<int64_t>(item.part_begin) * kPartition;
    const int64_t end = std::min<int64_t>(static_cast<int64_t>(item.part_end) * kPartition,
                                          u.first_position + u.num_queries);
    return static_cast<int64_t>(u.num_queries) * group * (end - begin);
}

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
    for (size_t s = 0; s < n; ++s) check_sequence(s);
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

void AttentionPlan::add_units(AttentionWork& work, int seq, int num_kv_heads, int queries_per_unit) const {
    const size_t s = static_cast<size_t>(seq);
    const int32_t rows = row_starts_[s + 1] - row_starts_[s];
    const int32_t start = context_lens_[s] - rows;
    for (int32_t i = 0; i < rows; i += queries_per_unit) {
        const int32_t n = std::min<int32_t>(queries_per_unit, rows - i);
        for (int32_t head = 0; head < num_kv_heads; ++head) {
            work.units.push_back(
                {seq, row_starts_[s] + i, n, start + i, head, num_parts(start + i + n - 1), /*partials=*/-1});
        }
    }
}

AttentionWork AttentionPlan::make_work(int num_heads, int num_kv_heads, int num_threads) const {
    AttentionWork work;
    const int group = num_heads / num_kv_heads;
    const int queries_per_unit = std::max(1, kUnitRows / group);
    for (int s = 0; s < num_seqs(); ++s) add_units(work, s, num_kv_heads, queries_per_unit);

    int64_t total = 0;
    for (const AttentionUnit& u : work.units) total += unit_cost(u, group);
    if (total < kAloneBelow) num_threads = 1;
    const int64_t share = num_threads == 1 ? total : total / (4 * num_threads);  // what one chunk should cost at most
    for (size_t i = 0; i < work.units.size(); ++i) {
        AttentionUnit& u = work.units[i];
        const int32_t id = static_cast<int32_t>(i);
        const int32_t rows = u.num_queries * group;
        work.max_rows = std::max(work.max_rows, rows);
        if (u.num_parts == 1 || unit_cost(u, group) <= share) {
            work.items.push_back({id, 0, u.num_parts});
            continue;
        }
        u.partials = work.partial_rows;
        work.partial_rows += static_cast<int64_t>(rows) * u.num_parts;
        work.split_units.push_back(id);
        for (int32_t part = 0; part < u.num_parts; ++part) work.items.push_back({id, part, part + 1});
    }

    const auto cost = [&](const AttentionItem& item) {
        return item_cost(work.units[static_cast<size_t>(item.unit)], item, group);
    };
    std::stable_sort(work.items.begin(), work.items.end(),
                     [&](const AttentionItem& a, const AttentionItem& b) { return cost(a) > cost(b); });
    int64_t sum = 0;
    work.chunks.push_back(0);
    for (size_t i = 0; i < work.items.size(); ++i) {
        sum += cost(work.items[i]);
        if (2 * sum > share || i + 1 == work.items.size()) {
            work.chunks.push_back(static_cast<int64_t>(i) + 1);
            sum = 0;
        }
    }
    return work;
}

const AttentionWork& AttentionPlan::work(int num_heads, int num_kv_heads, int num_threads) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Kept& k : kept_) {
        if (k.num_heads == num_heads && k.num_kv_heads == num_kv_heads && k.num_threads == num_threads) return *k.work;
    }
    auto made = std::make_unique<AttentionWork>(make_work(num_heads, num_kv_heads, num_threads));
    kept_.push_back({num_heads, num_kv_heads, num_threads, std::move(made)});
    return *kept_.back().work;
}

namespace {

// What the items of one call share.
struct Call {
    const AttentionPlan& plan;
    const AttentionWork& work;
    const KvMemory& kv;
    int64_t layer;
    int group;
    float scale;
    const float* q;
    float* out;
    float* partials;

    AttentionTask task(const AttentionUnit& u, int part_begin, int part_end) const {
        const int64_t dim = kv.head_dim, width = kv.num_kv_heads * group * dim;
        const int64_t offset = u.first_row * width + static_cast<int64_t>(u.kv_head) * group * dim;
        AttentionTask t;
        t.q = q + offset;
        t.out = out + offset;
        t.row_stride = width;
        t.num_queries = u.num_queries;
        t.group = group;
        t.head_dim = static_cast<int>(dim);
        t.first_position = u.first_position;
        t.scale = scale;
        t.keys = static_cast<const char*>(kv.layer(layer)) + u.kv_head * dim * kTile * (kv.half ? 2 : 4);
        t.tile_stride = kv.tile_stride();
        t.value_offset = kv.plane();
        t.next_head = u.kv_head + 1 < kv.num_kv_heads ? dim * kTile : 0;
        t.tiles = plan.tiles_of(u.seq);
        t.part_begin = part_begin;
        t.part_end = part_end;
        t.partials = nullptr;
        if (u.partials >= 0) {
            const int64_t row = u.partials + static_cast<int64_t>(part_begin) * u.num_queries * group;
            t.partials = partials + row * partial_stride(t.head_dim);
        }
        return t;
    }
};

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

std::vector<float>& scratch_of_thread(int64_t floats) {
    thread_local std::vector<float> scratch;
    if (static_cast<int64_t>(scratch.size()) < floats) scratch.resize(static_cast<size_t>(floats));
    return scratch;
}

}  // namespace

void paged_attention(Context& context, const AttentionPlan& plan, const KvMemory& kv, int64_t layer, int num_heads,
                     float scale, const float* q, float* out) {
    check_call(plan, kv, layer, num_heads);
    const AttentionKernels& kernels = select_attention_kernels(context.isa);
    const AttentionWork& work =
        plan.work(num_heads, static_cast<int>(kv.num_kv_heads), context.pool.num_threads());
    const int dim = static_cast<int>(kv.head_dim);
    const int64_t scratch_floats = attention_scratch_floats(work.max_rows, dim);
    const std::unique_ptr<float[]> partials(new float[static_cast<size_t>(work.partial_rows * partial_stride(dim))]);
    const Call call{plan, work, kv, layer, num_heads / static_cast<int>(kv.num_kv_heads), scale, q, out,
                    partials.get()};
    const auto attend = kv.half ? kernels.attend_f16 : kernels.attend_f32;

    context.pool.parallel_for(static_cast<int64_t>(work.chunks.size()) - 1, [&](int64_t chunk, int) {
        float* scratch = scratch_of_thread(scratch_floats).data();
        const size_t c = static_cast<size_t>(chunk);
        for (int64_t i = work.chunks[c]; i < work.chunks[c + 1]; ++i) {
            const AttentionItem& item = work.items[static_cast<size_t>(i)];
            const AttentionUnit& unit = work.units[static_cast<size_t>(item.unit)];
            attend(call.task(unit, item.part_begin, item.part_end), scratch);
        }
    });
    const int64_t num_split = static_cast<int64_t>(work.split_units.size());
    const int64_t step = work.partial_rows < kMergeRows ? std::max<int64_t>(num_split, 1) : 1;
    context.pool.parallel_for((num_split + step - 1) / step, [&](int64_t chunk, int) {
        for (int64_t i = chunk * step; i < std::min(num_split, (chunk + 1) * step); ++i) {
            const AttentionUnit& unit = work.units[static_cast<size_t>(work.split_units[static_cast<size_t>(i)])];
            kernels.merge(call.task(unit, 0, unit.num_parts));
        }
    });
}

}  // namespace octavo
