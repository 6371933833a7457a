#include "elementwise.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace octavo {
namespace {

// Floats that one chunk of work should touch at least; less is not worth another thread.
constexpr int64_t kChunkFloats = 16384;

void expect_below(const char* op, const char* what, const int32_t* ids, int64_t n, int64_t limit) {
    for (int64_t i = 0; i < n; ++i) {
        if (ids[i] >= 0 && ids[i] < limit) continue;
        throw std::invalid_argument(std::string(op) + ": expected " + what + " from 0 to " + std::to_string(limit - 1) +
                                    ", got " + std::to_string(ids[i]) + " at index " + std::to_string(i));
    }
}

// fn(first, last, thread) over 0 .. count in chunks of a multiple of `step` entries, each of `floats` floats.
template <class F>
void for_ranges(Context& context, int64_t count, int64_t floats, int64_t step, const F& fn) {
    if (count == 0) return;
    int64_t size = std::max<int64_t>(1, kChunkFloats / std::max<int64_t>(1, floats));
    size = (size + step - 1) / step * step;
    context.pool.parallel_for((count + size - 1) / size, [&](int64_t chunk, int thread) {
        fn(chunk * size, std::min(count, (chunk + 1) * size), thread);
    });
}

}  // namespace

void rms_norm(Context& context, const NormTask& task, int64_t num_rows) {
    const ElementwiseKernels& kernels = select_elementwise_kernels(context.isa);
    for_ranges(context, num_rows, task.size, 1,
               [&](int64_t first, int64_t last, int) { kernels.rms_norm(task, first, last); });
}

void silu_mul(Context& context, const float* gate_up, int64_t num_rows, int64_t size, float* out) {
    if (size == 0) return;
    const ElementwiseKernels& kernels = select_elementwise_kernels(context.isa);
    const int64_t piece = std::min<int64_t>(size, kChunkFloats / 4);  // exp and division: four times the work
    const int64_t pieces = (size + piece - 1) / piece;
    for_ranges(context, num_rows * pieces, 4 * piece, 1, [&](int64_t first, int64_t last, int) {
        for (int64_t i = first; i < last; ++i) {
            const int64_t row = i / pieces, begin = i % pieces * piece;
            const float* gate = gate_up + row * 2 * size + begin;
            kernels.silu_mul(gate, gate + size, std::min(piece, size - begin), out + row * size + begin);
        }
    });
}

void rope_and_store(Context& context, RopeTask task, const KvMemory& kv, int64_t layer, int64_t num_rows,
                    int64_t num_positions) {
    if (layer < 0 || layer >= kv.num_layers) {
        throw std::invalid_argument("rope_and_store: expected a layer from 0 to " + std::to_string(kv.num_layers - 1) +
                                    ", got " + std::to_string(layer));
    }
    expect_below("rope_and_store", "positions", task.positions, num_rows, num_positions);
    expect_below("rope_and_store", "slots", task.slots, num_rows, kv.num_tiles * 16);
    task.layer = kv.layer(layer);
    task.tile_stride = kv.tile_stride();
    task.value_offset = kv.plane();
    const ElementwiseKernels& kernels = select_elementwise_kernels(context.isa);
    const auto rope = kv.half ? kernels.rope_f16 : kernels.rope_f32;
    const int64_t floats = static_cast<int64_t>(task.num_heads + 2 * task.num_kv_heads) * task.head_dim;
    const int64_t scratch_floats = rope_scratch_floats(task.head_dim);
    thread_local std::vector<float> kept;  // of the calling thread, for all threads of the pool
    const size_t needed = static_cast<size_t>(context.pool.num_threads() * scratch_floats);
    if (kept.size() < needed) kept.resize(needed);
    float* const scratch = kept.data();
    for_ranges(context, num_rows, floats, 16, [&](int64_t first, int64_t last, int thread) {
        rope(task, first, last, scratch + thread * scratch_floats);
    });
}

void copy_tiles(Context& context, void* kv, int64_t num_tiles, int64_t tile_bytes, const int32_t* src,
                const int32_t* dst, int64_t num_copies) {
    expect_below("copy_tiles", "src", src, num_copies, num_tiles);
    expect_below("copy_tiles", "dst", dst, num_copies, num_tiles);
    // Each thread does all copies, in order, for its range of a tile's bytes: a later copy may read an earlier one's dst.
    char* base = static_cast<char*>(kv);
    const int64_t pieces = num_copies * tile_bytes < (int64_t{1} << 18) ? 1 : context.pool.num_threads();
    const int64_t piece = ((tile_bytes + pieces - 1) / pieces + 63) / 64 * 64;
    context.pool.parallel_for(pieces, [&](int64_t p, int) {
        const int64_t begin = std::min(tile_bytes, p * piece), end = std::min(tile_bytes, begin + piece);
        for (int64_t i = 0; i < num_copies; ++i) {
            if (src[i] == dst[i]) continue;
            std::memcpy(base + dst[i] * tile_bytes + begin, base + src[i] * tile_bytes + begin,
                        static_cast<size_t>(end - begin));
        }
    });
}

}  // namespace octavo
