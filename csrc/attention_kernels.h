// One query tile against the keys and values of one KV head: the arithmetic of paged attention.
//
// A context is cut at fixed borders into partitions of kPartition tokens. Within a partition a query takes the
// softmax of its scores over the tokens up to its own position, as its largest score m, its
// weight l = sum 2^(s - m) and acc = sum 2^(s - m) v; partitions are then folded in order:
//     m' = max(m, m_p)   l' = l 2^(m - m') + l_p 2^(m_p - m')   acc' likewise;   output = acc / l
// With a window, tokens before it have no weight, and folding begins with the first partition that it reaches into.
// All of this depends on the query's position alone, so a query gives the same bits in any chunk or batch, and
// whether its partitions ran on one thread or on several.
//
// KV memory (ops/base.py): of a tile, keys are [D, 16 tokens] and values [16 tokens, D].
#pragma once

#include <cstdint>

#include "isa.h"

namespace octavo {

constexpr int kTile = 16;
constexpr int kPartition = 256;
constexpr int kTilesPerPartition = kPartition / kTile;
constexpr int kStepTiles = 4;  // tiles that are taken at a time: they stay in the first-level cache for all rows
constexpr int kBandRows = 48;  // whose scores stay near
constexpr int kNoWindow = 1 << 30;  // more than any position

// Rows of a tile are its queries times the heads of a group, query-major: row = query * group + head.
struct AttentionTask {
    const float* q;      // first query, first head of the group; heads follow each other
    float* out;          // likewise
    int64_t row_stride;  // floats from one query to the next, in q and out
    int num_queries;
    int group;           // query heads for each KV head
    int head_dim;        // a multiple of 8
    int first_position;  // of the first query; the others follow it
    int window;          // tokens that a query sees, itself the last; or kNoWindow
    float scale;         // of scores, to powers of two: the softmax's own times log2 e
    const void* keys;     // of this layer and head in tile 0
    int64_t tile_stride;  // elements from a tile to the next
    int64_t value_offset; // elements from a tile's keys to its values
    int64_t next_head;    // elements from the keys to those that the next task will read in the same tiles; 0: none
    const int32_t* tiles; // of the sequence, from position 0; those before the first query's window are not used
    int part_begin, part_end;  // partitions to do
    const int32_t* query_rows;  // null: queries follow each other; else query i is this many row_strides from q, and
                                // all of them see the whole of the partitions
    const int64_t* results;     // null: fold and write `out`; else for each partition the row of `partials` where its
                                // result goes (its first row; the others follow)
    float* partials;            // rows of partial_stride floats
};

static inline int padded_head_dim(int head_dim) { return (head_dim + 15) / 16 * 16; }

// Floats of one row's partial result: acc (padded), m, l.
static inline int64_t partial_stride(int head_dim) { return padded_head_dim(head_dim) + 2; }

// A task's queries are done in so many bands, about of one size.
static inline int num_bands(int num_queries, int group) {
    const int wanted = (num_queries * group + kBandRows - 1) / kBandRows;
    return wanted < num_queries ? wanted : num_queries;
}

// For tasks of up to so many rows.
static inline int64_t attention_scratch_floats(int rows, int group, int head_dim) {
    const int64_t of_row = head_dim + partial_stride(head_dim);
    const int64_t of_band_row = kPartition + partial_stride(head_dim);
    const int band_rows = rows < kBandRows + group ? rows : kBandRows + group;
    const int64_t buffer = static_cast<int64_t>(kPartition) * padded_head_dim(head_dim);  // keys and values in half the bits
    return rows * of_row + band_rows * of_band_row + buffer;
}

// The first token that the query at a position sees.
static inline int first_seen(int position, int window) { return position < window ? 0 : position + 1 - window; }

struct AttentionKernels {
    void (*attend_f16)(const AttentionTask& task, float* scratch);
    void (*attend_f32)(const AttentionTask& task, float* scratch);
    // Folds the partial results of a whole task, all partitions that its queries see (overwrites them), and writes its
    // `out`.
    void (*merge)(const AttentionTask& task);
};

OCTAVO_KERNEL_TABLE_BF16(AttentionKernels, attention_kernels)

}  // namespace octavo
