// Linear maps: weights packed for the kernels, and y = x W^T + bias on all threads of a context.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aligned_buffer.h"
#include "context.h"
#include "weight_types.h"

namespace octavo {

// Number of the layout that weights are packed in. Copies on disk bear it: count it up with every change of
// pack_panel, of panel_bytes or of the order and alignment of parts.
constexpr int kPackedLayout = 1;

// A matrix [num_outputs, k] as it lies in its file.
struct RawMatrix {
    std::string name;  // for errors
    WeightType type;
    const uint8_t* data;
    int64_t num_outputs;
};

// A matrix [num_outputs, k] that is packed already.
struct PackedMatrix {
    WeightType type;
    int64_t num_outputs;
};

// Rows to be multiplied, made when they are needed.
class RowSource {
public:
    virtual ~RowSource() = default;

    // Rows row .. row + count - 1 (kMaxRows at most), side by side: in `buffer`, which has room for them, or
    // wherever they lie. Called once for each row, from several threads.
    virtual const float* rows(int64_t row, int count, float* buffer) const = 0;
};

// Rows that lie in memory.
class StoredRows : public RowSource {
public:
    StoredRows(const float* x, int64_t k) : x_(x), k_(k) {}
    const float* rows(int64_t row, int, float*) const override { return x_ + row * k_; }

private:
    const float* x_;
    int64_t k_;
};

// A block of rows, laid out for the kernels of one map (linear_kernels.h). Every array holds its rows tile after tile;
// since a row takes the same space whatever its tile, tile positions are multiples of the first row.
struct LinearRows {
    static constexpr int kMaxCorrections = 8;

    int64_t count;
    int8_t* q;
    float* scale;
    int32_t* sums;
    uint8_t* corrections[kMaxCorrections];
    float* x;
};

class Linear {
public:
    // The matrices, stacked over their outputs; each keeps its own type. Only packs: keeps no pointer to their data.
    // Throws std::invalid_argument if k does not suit a type, and std::domain_error, naming matrix and row,
    // for a weight or scale that is not finite.
    Linear(const std::vector<RawMatrix>& parts, int64_t k, ThreadPool& pool);

    // The bytes that another Linear of the same matrices packed (`packed`), used in place: they are only read, and have to
    // outlive this. Throws std::invalid_argument if their number or their alignment (64) is wrong.
    Linear(const std::vector<PackedMatrix>& parts, int64_t k, const uint8_t* packed, size_t size);

    int64_t k() const { return k_; }
    int64_t num_outputs() const { return num_outputs_; }
    size_t num_bytes() const { return packed_.size(); }
    const uint8_t* packed() const { return packed_.data(); }

    // x [rows, k] -> out [rows, num_outputs]; bias [num_outputs] or null.
    void run(Context& context, const RowSource& x, int64_t rows, const float* bias, float* out) const;

    // The steps of `run`, for callers that have something to do in between.

    // Rows to be laid out at once, at most: they stay in the second-level cache.
    int64_t rows_in_block() const;
    size_t layout_bytes(int64_t rows) const;
    LinearRows place(uint8_t* memory, int64_t rows) const;

    // `count` of the rows from `first` on. first: a multiple of kMaxRows; count: one too, or up to the last row.
    LinearRows some(const LinearRows& rows, int64_t first, int64_t count) const;

    // Fills `to` with its number of rows from `first_row` on. buffers: kMaxRows * k floats for each thread.
    void lay_out(Context& context, const RowSource& x, int64_t first_row, const LinearRows& to, float* buffers) const;

    // Columns first .. first + columns - 1 of a tile of `count` rows from `row` on; from [count, stride].
    // `columns` is kStep, or less for the last of a map with only float weights.
    void lay_out_columns(const Context& context, const float* from, int64_t stride, int64_t row, int count,
                         int64_t first, int64_t columns, const LinearRows& to) const;

    void multiply(Context& context, const LinearRows& rows, const float* bias, float* out) const;

    // Whether this map gives gate and up halves for `next`, and in a form that multiply_gated takes.
    bool gates(const Linear& next) const;

    // silu(first half) * second half of this map's outputs, laid out for `next` with as many rows.
    void multiply_gated(Context& context, const LinearRows& rows, const float* bias, const Linear& next,
                        const LinearRows& to) const;

private:
    struct Part {
        WeightType type;
        int64_t num_outputs;
        int64_t first_output;
        int64_t first_panel;
        int64_t num_panels;
        int64_t panel_bytes;
        size_t offset;   // of its first panel in packed_
        int correction;  // index in corrections_ (quantised)
    };

    // What rows need beside their integers, for the parts whose types agree in it.
    struct Correction {
        int zero;         // 0: scale * sum, for minima
        int num_sums;     // 2: one for each 16 weights
    };

    // Enters the matrix; returns where it ends in packed_, if it begins at `offset`.
    size_t add_part(const PackedMatrix& matrix, size_t offset);

    struct Tile {
        int64_t row;
        int count;
    };
    struct Panels {
        const Part& part;
        int64_t begin, end;
        const uint8_t* then;  // weights that are wanted after these, or null: fetch none into the cache
    };

    void run_panels(const Context& context, const LinearRows& rows, int64_t begin, int64_t end, const float* bias,
                    float* out) const;
    int64_t run_quant(const Context& context, const Part& part, int64_t panel, int64_t end, const LinearRows& rows,
                      const float* bias, float* out) const;
    int64_t run_floats(const Context& context, const Part& part, int64_t panel, int64_t end, const LinearRows& rows,
                       const float* bias, float* out) const;
    const uint8_t* panel_at(const Part& part, int64_t panel) const;
    void run_tile(const Context& context, const Panels& panels, const LinearRows& rows, Tile tile, const float* bias,
                  float* out, int64_t stride) const;
    void correct(const LinearRows& rows, int64_t row, int count, int64_t first_step, int64_t steps) const;

    int64_t k_;
    int64_t num_outputs_ = 0;
    int64_t num_panels_ = 0;
    bool any_quant_ = false;
    bool any_float_ = false;
    std::vector<Part> parts_;
    std::vector<Correction> corrections_;
    AlignedBuffer packed_;
};

// Bytes of a panel of 16 outputs.
int64_t panel_bytes(WeightType type, int64_t k);

// Packs outputs first .. first + 15 (those past the end as zeros) of the matrix. Returns -1, or the output
// in which a weight or a scale is not finite.
int64_t pack_panel(const RawMatrix& matrix, int64_t k, int64_t first, uint8_t* panel);

}  // namespace octavo
