#include "attention_share.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "attention_kernels.h"

namespace octavo {
namespace {

int compare(const ShareCandidate& a, const ShareCandidate& b, int32_t part) {
    const int64_t first = static_cast<int64_t>(part) * kTilesPerPartition;
    return std::memcmp(a.tiles + first, b.tiles + first, kTilesPerPartition * sizeof(int32_t));
}

// Equal ones become neighbours; which of the different ones comes first does not matter.
void gather_equal(std::vector<ShareCandidate>& candidates, int32_t part) {
    const auto same = [&](const ShareCandidate& c) { return compare(c, candidates.front(), part) == 0; };
    if (std::all_of(candidates.begin(), candidates.end(), same)) return;  // deep in a common prefix: most often
    std::stable_sort(candidates.begin(), candidates.end(), [&](const ShareCandidate& a, const ShareCandidate& b) {
        return compare(a, b, part) < 0;
    });
}

}  // namespace

std::vector<SharedPart> find_shared_parts(std::vector<ShareCandidate> candidates) {
    std::vector<SharedPart> found;
    std::vector<SharedPart> open;  // the same up to the partition before `part`
    open.push_back({0, std::move(candidates)});
    while (!open.empty()) {
        SharedPart group = std::move(open.back());
        open.pop_back();
        auto& all = group.members;
        const auto ends = [&](const ShareCandidate& c) { return c.num_full_parts <= group.part; };
        all.erase(std::remove_if(all.begin(), all.end(), ends), all.end());
        if (all.size() < 2) continue;
        gather_equal(all, group.part);
        for (size_t begin = 0, end; begin < all.size(); begin = end) {
            for (end = begin + 1; end < all.size() && compare(all[begin], all[end], group.part) == 0;) ++end;
            if (end - begin < 2) continue;
            std::vector<ShareCandidate> members(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                                all.begin() + static_cast<std::ptrdiff_t>(end));
            open.push_back({group.part + 1, members});
            found.push_back({group.part, std::move(members)});
        }
    }
    return found;
}

}  // namespace octavo
