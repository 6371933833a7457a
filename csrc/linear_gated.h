// A gated MLP: down(silu(gate) * up) with the halves never in memory as floats.
#pragma once

#include <cstdint>

#include "context.h"
#include "linear.h"

namespace octavo {

struct GatedMaps {
    const Linear& gate_up;  // gate_up.gates(down)
    const float* gate_up_bias;
    const Linear& down;
    const float* down_bias;
};

// x [rows, gate_up.k()] -> out [rows, down.num_outputs()].
void run_gated(Context& context, const GatedMaps& maps, const RowSource& x, int64_t rows, float* out);

}  // namespace octavo
