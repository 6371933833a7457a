// Which sequences of a step hold the same tiles, partition by partition.
#pragma once

#include <cstdint>
#include <vector>

namespace octavo {

// What there is to know of a sequence.
struct ShareCandidate {
    int32_t seq;
    const int32_t* tiles;   // from position 0
    int32_t num_full_parts; // partitions that each of its queries sees whole
};

// Sequences (two or more, in the order they were given in) whose tiles are the same in partitions 0 .. part.
struct SharedPart {
    int32_t part;
    std::vector<ShareCandidate> members;
};

// All of them. Each sequence is in one SharedPart for each partition of the longest prefix that it has in common
// with another, and in no other.
std::vector<SharedPart> find_shared_parts(std::vector<ShareCandidate> candidates);

}  // namespace octavo
