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
    void run(Context& context, const float* x, int64_t rows, const float* bias, float* out) const;

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

    struct Rows;  // a block of rows, laid out for the kernels

    Rows lay_out(Context& context, const float* x, int64_t rows) const;
    void run_panels(const Context& context, const Rows& rows, int64_t begin, int64_t end, const float* bias,
                    float* out) const;
    int64_t run_quant(const Context& context, const Part& part, int64_t panel, int64_t end, const Rows& rows,
                      const float* bias, float* out) const;
    int64_t run_floats(const Context& context, const Part& part, int64_t panel, int64_t end, const Rows& rows,
                       const float* bias, float* out) const;
    void quantize_tile(const Context& context, const Rows& rows, const float* x, int64_t row, int count) const;
    int64_t rows_in_block() const;

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
