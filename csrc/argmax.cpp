#include "argmax.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "argmax_kernels.h"

namespace octavo {
namespace {

constexpr int64_t kPiece = 1024;  // numbers: their largest is found first, then its place in the best piece alone

// Of some pieces of a row.
struct Best {
    float value;  // NaN if there is one
    int64_t place;
};

Best best_of(const ArgmaxKernels& kernels, const float* row, int64_t begin, int64_t end) {
    Best best{kernels.max(row + begin, std::min(kPiece, end - begin)), begin};
    if (std::isnan(best.value)) return best;
    for (int64_t at = begin + kPiece; at < end; at += kPiece) {
        const float value = kernels.max(row + at, std::min(kPiece, end - at));
        if (std::isnan(value)) return {value, at};
        if (value > best.value) best = {value, at};
    }
    while (row[best.place] != best.value) ++best.place;
    return best;
}

}  // namespace

void argmax(Context& context, const float* x, int64_t rows, int64_t size, int32_t* out) {
    if (size == 0) std::fill(out, out + rows, -1);
    if (rows == 0 || size == 0) return;
    const ArgmaxKernels& kernels = select_argmax_kernels(context.isa);
    // Few rows: each is shared out among the threads, whole pieces to each.
    const int64_t pieces = (size + kPiece - 1) / kPiece;
    const int64_t parts = std::clamp<int64_t>(context.pool.num_threads() / rows, 1, pieces);
    std::vector<Best> found(static_cast<size_t>(rows * parts));
    context.pool.parallel_for(rows * parts, [&](int64_t chunk, int) {
        const int64_t part = chunk % parts;
        const int64_t begin = pieces * part / parts * kPiece;
        const int64_t end = std::min(pieces * (part + 1) / parts * kPiece, size);
        found[static_cast<size_t>(chunk)] = best_of(kernels, x + chunk / parts * size, begin, end);
    });
    for (int64_t row = 0; row < rows; ++row) {
        Best best = found[static_cast<size_t>(row * parts)];
        for (int64_t part = 1; part < parts; ++part) {
            const Best& other = found[static_cast<size_t>(row * parts + part)];
            if (other.value > best.value || std::isnan(other.value)) best = other;
        }
        out[row] = std::isfinite(best.value) ? static_cast<int32_t>(best.place) : -1;
    }
}

}  // namespace octavo
