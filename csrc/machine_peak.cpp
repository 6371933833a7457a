#include "machine_peak.h"

#include <atomic>

#include "machine_peak_kernels.h"

namespace octavo {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;

// Results go here, so that no loop can be left out.
std::atomic<uint64_t> sink{0};

}  // namespace

int64_t peak_read(Context& context, const uint8_t* data, int64_t bytes) {
    const PeakKernels& kernels = select_peak_kernels(context.isa);
    const int64_t pieces = bytes / kPiece;
    context.pool.parallel_for(pieces, [&](int64_t piece, int) {
        sink.fetch_xor(kernels.read(data + piece * kPiece, kPiece), std::memory_order_relaxed);
    });
    return pieces * kPiece;
}

int64_t peak_fma(Context& context, int64_t rounds) {
    const PeakKernels& kernels = select_peak_kernels(context.isa);
    const int threads = context.pool.num_threads();
    context.pool.parallel_for(threads, [&](int64_t, int) {
        const float sum = kernels.fma(rounds, 0.5f);
        sink.fetch_xor(static_cast<uint64_t>(static_cast<int64_t>(sum)), std::memory_order_relaxed);
    });
    return threads * rounds * kernels.fma_ops;
}

int64_t peak_dot(Context& context, int64_t rounds) {
    const PeakKernels& kernels = select_peak_kernels(context.isa);
    const int threads = context.pool.num_threads();
    context.pool.parallel_for(threads, [&](int64_t, int) {
        const int32_t sum = kernels.dot(rounds, 5);
        sink.fetch_xor(static_cast<uint64_t>(static_cast<int64_t>(sum)), std::memory_order_relaxed);
    });
    return threads * rounds * kernels.dot_ops;
}

const char* peak_dot_name(const Context& context) { return select_peak_kernels(context.isa).dot_name; }

}  // namespace octavo
