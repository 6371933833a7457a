#include <algorithm>

#include "attention.h"
#include "attention_kernels.h"
#include "attention_share.h"

namespace octavo {
namespace {

// Rows of a unit at most: enough that a tile that was loaded, or rounded, is used many times. Fewer, down to a band, where
// there would not be kUnitsPerThread units for each thread.
constexpr int kUnitRows = 192;
constexpr int kUnitsPerThread = 4;

// Rows of a shared item: the scores of so many fit in the first-level cache beside the tiles. What is more goes to the
// next item, which finds the tiles in the second.
constexpr int kSharedRows = 12;

// Query rows times tokens below which other threads are not woken.
constexpr int64_t kAloneBelow = 1000;

// Rows of partial results below which one thread merges them all, and of a chunk where several do.
constexpr int64_t kMergeAloneBelow = 1000, kMergeChunk = 250;

class WorkMaker {
public:
    WorkMaker(const AttentionPlan& plan, const AttentionKind& kind, int num_threads)
        : plan_(plan),
          rows_(kind.rows),
          num_kv_heads_(kind.num_kv_heads),
          group_(kind.num_heads / kind.num_kv_heads),
          window_(kind.window),
          queries_per_unit_(std::max(1, rows_per_unit(num_threads) / group_)) {
        work_.num_threads = num_threads;
    }

    AttentionWork make() {
        std::vector<ShareCandidate> candidates;
        for (int s = 0; s < plan_.num_seqs(); ++s) add_units(s, candidates);
        for (const SharedPart& part : find_shared_parts(std::move(candidates))) add_shared_items(part);
        add_own_items();
        order_items();
        cut_chunks();
        cut_merges();
        return std::move(work_);
    }

private:
    struct Planned {
        AttentionItem item;
        int64_t cost, rank;  // query rows times tokens; items of high rank go first
    };

    int rows_per_unit(int num_threads) const {
        const int64_t rows = static_cast<int64_t>(plan_.num_rows()) * group_ * num_kv_heads_;
        const int64_t balanced = rows / (static_cast<int64_t>(kUnitsPerThread) * num_threads);
        return static_cast<int>(std::clamp<int64_t>(balanced, kBandRows, kUnitRows));
    }

    // Sequences with few rows may share: a band that is full uses what they load often enough alone. What the window of a
    // query has left behind is not shared: it is seen in part, or not at all.
    void add_units(int seq, std::vector<ShareCandidate>& candidates) {
        const int32_t first = plan_.first_row_of(seq), end = first + plan_.rows_of(seq);
        const int32_t before = plan_.context_of(seq) - end;  // position of a row minus its number
        const size_t first_unit = work_.units.size();
        first_unit_.push_back(static_cast<int32_t>(first_unit));
        for (int32_t row = next_row(first, end); row < end;) {
            const int32_t n = num_wanted(row, end);
            // Units of one size, about: a small one at the end would load all it needs for few rows.
            const int32_t num_units = (n + queries_per_unit_ - 1) / queries_per_unit_;
            for (int32_t i = 0; i < num_units; ++i) {
                const int32_t begin = static_cast<int32_t>(static_cast<int64_t>(n) * i / num_units);
                const int32_t stop = static_cast<int32_t>(static_cast<int64_t>(n) * (i + 1) / num_units);
                add_unit(seq, row + begin, stop - begin, before + row + begin);
            }
            row = next_row(row + n, end);
        }
        if (work_.units.size() - first_unit != static_cast<size_t>(num_kv_heads_)) return;
        if (rows_of(work_.units.back()) > kBandRows) return;
        const int32_t full_parts = (work_.units.back().first_position + 1) / kPartition;
        if (full_parts > 0 && plan_.context_of(seq) <= window_) {
            candidates.push_back({seq, plan_.tiles_of(seq), full_parts});
        }
    }

    void add_unit(int seq, int32_t row, int32_t n, int32_t position) {
        const int32_t part_begin = first_seen(position, window_) / kPartition;
        const int32_t part_end = (position + n - 1) / kPartition + 1;
        for (int32_t head = 0; head < num_kv_heads_; ++head) {
            work_.units.push_back({seq, row, n, position, head, part_begin, part_end, /*shared_end=*/part_begin,
                                   /*results=*/-1});
        }
    }

    // The first row from `row` on that is computed, or `end`. Rows are asked for in rising order.
    int32_t next_row(int32_t row, int32_t end) {
        if (!rows_) return row;
        while (next_wanted_ < rows_->size() && (*rows_)[next_wanted_] < row) ++next_wanted_;
        return next_wanted_ < rows_->size() ? std::min(end, (*rows_)[next_wanted_]) : end;
    }

    // How many from `row`, which is computed, to `end` are computed one after the other.
    int32_t num_wanted(int32_t row, int32_t end) const {
        if (!rows_) return end - row;
        int32_t n = 1;
        while (row + n < end && next_wanted_ + static_cast<size_t>(n) < rows_->size() &&
               (*rows_)[next_wanted_ + static_cast<size_t>(n)] == row + n) {
            ++n;
        }
        return n;
    }

    AttentionUnit& unit_of(const ShareCandidate& member, int32_t head) {
        return work_.units[static_cast<size_t>(first_unit_[static_cast<size_t>(member.seq)] + head)];
    }

    int64_t queries_of(const ShareCandidate& member) const {
        return work_.units[static_cast<size_t>(first_unit_[static_cast<size_t>(member.seq)])].num_queries;
    }

    int64_t rows_of(const AttentionUnit& u) const { return static_cast<int64_t>(u.num_queries) * group_; }

    int64_t take_partial_rows(int64_t rows) {
        const int64_t first = work_.partial_rows;
        work_.partial_rows += rows;
        return first;
    }

    // The unit leaves partial results, to be merged.
    void keep_results(AttentionUnit& u) {
        if (u.results >= 0) return;
        u.results = static_cast<int64_t>(work_.results.size());
        work_.results.resize(work_.results.size() + static_cast<size_t>(u.part_end - u.part_begin));
        work_.merged_units.push_back(static_cast<int32_t>(&u - work_.units.data()));
    }

    void set_result(const AttentionUnit& u, int32_t part) {
        work_.results[static_cast<size_t>(u.results + part - u.part_begin)] = take_partial_rows(rows_of(u));
    }

    // Members in runs of the same size, about: of kSharedRows rows and at least two members. Gives where they end.
    std::vector<size_t> cut_members(const std::vector<ShareCandidate>& members) const {
        int64_t queries = 0, taken = 0, per_run = kSharedRows / group_;
        for (const ShareCandidate& m : members) {
            queries += queries_of(m);
            per_run = std::max<int64_t>(per_run, 2 * queries_of(m));
        }
        const int64_t num_runs = std::max<int64_t>(1, queries / per_run);
        std::vector<size_t> ends;
        for (size_t i = 0; i < members.size(); ++i) {
            taken += queries_of(members[i]);
            if (taken * num_runs >= static_cast<int64_t>(ends.size() + 1) * queries) ends.push_back(i + 1);
        }
        return ends;
    }

    void add_shared_items(const SharedPart& part) {
        const std::vector<size_t> ends = cut_members(part.members);
        const size_t first_item = work_.shared_items.size();
        int64_t largest = 0;
        for (int32_t head = 0; head < num_kv_heads_; ++head) {
            size_t begin = 0;
            int32_t first_query = head == 0 ? static_cast<int32_t>(work_.shared_queries.size())
                                            : work_.shared_items[first_item].first_query;
            for (const size_t end : ends) {
                SharedItem item{part.members[begin].seq, part.part, head, first_query, /*num_queries=*/0,
                                end == part.members.size(), work_.partial_rows};
                for (; begin < end; ++begin) add_member(item, part.members[begin]);
                first_query += item.num_queries;
                largest = std::max(largest, static_cast<int64_t>(item.num_queries) * group_);
                work_.shared_items.push_back(item);
            }
        }
        // Of one rank, so that they stay together: each finds the tiles where the one before left them.
        for (size_t i = first_item; i < work_.shared_items.size(); ++i) {
            const int64_t rows = static_cast<int64_t>(work_.shared_items[i].num_queries) * group_;
            planned_.push_back({{static_cast<int32_t>(i), -1, part.part, part.part + 1}, rows * kPartition,
                                largest * kPartition});
        }
        work_.max_rows = std::max(work_.max_rows, static_cast<int32_t>(largest));
    }

    void add_member(SharedItem& item, const ShareCandidate& member) {
        AttentionUnit& u = unit_of(member, item.kv_head);
        keep_results(u);
        set_result(u, item.part);
        u.shared_end = std::max(u.shared_end, item.part + 1);
        item.num_queries += u.num_queries;
        if (item.kv_head > 0) return;  // the same queries for all heads
        for (int32_t i = 0; i < u.num_queries; ++i) work_.shared_queries.push_back(u.first_row + i);
    }

    // Of partitions begin .. end.
    int64_t cost(const AttentionUnit& u, int32_t begin, int32_t end) const {
        const int64_t first = std::max<int64_t>(static_cast<int64_t>(begin) * kPartition,
                                                first_seen(u.first_position, window_));
        const int64_t last = std::min<int64_t>(static_cast<int64_t>(end) * kPartition,
                                               static_cast<int64_t>(u.first_position) + u.num_queries);
        return rows_of(u) * std::max<int64_t>(last - first, 0);
    }

    void add_own_items() {
        int64_t total = 0;
        for (const Planned& p : planned_) total += p.cost;
        for (const AttentionUnit& u : work_.units) total += cost(u, u.shared_end, u.part_end);
        const bool alone = work_.num_threads == 1 || total < kAloneBelow;
        most_ = alone ? 2 * total : total / (4 * work_.num_threads);
        for (size_t i = 0; i < work_.units.size(); ++i) add_own_items(static_cast<int32_t>(i));
    }

    void add_own_items(int32_t id) {
        AttentionUnit& u = work_.units[static_cast<size_t>(id)];
        const int32_t begin = u.shared_end, end = u.part_end;
        work_.max_rows = std::max(work_.max_rows, static_cast<int32_t>(rows_of(u)));
        const int64_t whole = cost(u, begin, end);
        const bool split = end - begin > 1 && whole > most_;
        if (split) keep_results(u);
        for (int32_t part = begin; u.results >= 0 && part < end; ++part) {
            set_result(u, part);
        }
        if (!split && begin < end) planned_.push_back({{-1, id, begin, end}, whole, whole});
        for (int32_t part = begin; split && part < end; ++part) {
            const int64_t c = cost(u, part, part + 1);
            planned_.push_back({{-1, id, part, part + 1}, c, c});
        }
    }

    void order_items() {
        std::stable_sort(planned_.begin(), planned_.end(),
                         [](const Planned& a, const Planned& b) { return a.rank > b.rank; });
        for (const Planned& p : planned_) work_.items.push_back(p.item);
    }

    void cut_chunks() {
        int64_t sum = 0;
        work_.chunks.push_back(0);
        for (size_t i = 0; i < planned_.size(); ++i) {
            sum += planned_[i].cost;
            if (2 * sum <= most_ && i + 1 < planned_.size()) continue;
            work_.chunks.push_back(static_cast<int64_t>(i) + 1);
            sum = 0;
        }
    }

    void cut_merges() {
        const int64_t chunk = work_.partial_rows < kMergeAloneBelow ? kMergeAloneBelow : kMergeChunk;
        int64_t sum = 0;
        work_.merge_chunks.push_back(0);
        for (size_t i = 0; i < work_.merged_units.size(); ++i) {
            const AttentionUnit& u = work_.units[static_cast<size_t>(work_.merged_units[i])];
            sum += rows_of(u) * (u.part_end - u.part_begin);
            if (sum < chunk && i + 1 < work_.merged_units.size()) continue;
            work_.merge_chunks.push_back(static_cast<int64_t>(i) + 1);
            sum = 0;
        }
    }

    const AttentionPlan& plan_;
    const std::optional<std::vector<int32_t>>& rows_;
    const int num_kv_heads_, group_, window_, queries_per_unit_;
    size_t next_wanted_ = 0;  // of rows_
    AttentionWork work_;
    std::vector<int32_t> first_unit_;  // of each sequence
    std::vector<Planned> planned_;
    int64_t most_ = 0;  // what one chunk should cost at most
};

}  // namespace

AttentionWork make_attention_work(const AttentionPlan& plan, const AttentionKind& kind, int num_threads) {
    return WorkMaker(plan, kind, num_threads).make();
}

}  // namespace octavo
