#include "elementwise_kernels.h"

#include "norm_row.h"
#include "vec16.h"

namespace octavo {
namespace OCTAVO_ISA {
namespace {

void rms_norm(const NormTask& t, int64_t first_row, int64_t last_row) {
    for (int64_t r = first_row; r < last_row; ++r) {
        const float* x = t.x + r * t.size;
        if (t.residual != nullptr) {
            float* sum = t.residual + r * t.size;
            for (int64_t i = 0; i < t.size; ++i) sum[i] += x[i];
            x = sum;
        }
        scale_row(x, t.weight, inverse_rms(x, t.size, t.eps), t.size, t.out + r * t.size);
    }
}

OCTAVO_INLINE V16 silu_times(V16 gate, V16 up) {
    return mul(div(gate, add(set1(1.0f), exp_(sub(zero(), gate)))), up);
}

void silu_mul(const float* gate, const float* up, int64_t size, float* out) {
    int64_t i = 0;
    for (; i + 16 <= size; i += 16) store(out + i, silu_times(load(gate + i), load(up + i)));
    if (i < size) {
        const int left = static_cast<int>(size - i);
        store_n(out + i, silu_times(load_n(gate + i, left), load_n(up + i, left)), left);
    }
}

// ---- rotary ---------------------------------------------------------------------------------------------------

// Plain multiplications and additions, so the compiler may choose any vectors.
void rotate(const RopeTask& t, const float* x, int position, float* __restrict y) {
    const float* cos = t.cos + static_cast<int64_t>(position) * t.num_pairs;
    const float* sin = t.sin + static_cast<int64_t>(position) * t.num_pairs;
    const int n = t.num_pairs;
    if (t.interleaved) {
        for (int i = 0; i < n; ++i) {
            const float a = x[2 * i], b = x[2 * i + 1];
            y[2 * i] = a * cos[i] - b * sin[i];
            y[2 * i + 1] = b * cos[i] + a * sin[i];
        }
    } else {
        for (int i = 0; i < n; ++i) {
            const float a = x[i], b = x[n + i];
            y[i] = a * cos[i] - b * sin[i];
            y[n + i] = b * cos[i] + a * sin[i];
        }
    }
    for (int i = 2 * n; i < t.head_dim; ++i) y[i] = x[i];
}

// Head norm if there is one, then the rotation. normed: scratch of head_dim.
void norm_and_rotate(const RopeTask& t, const float* x, const float* norm, int position, float* normed, float* y) {
    if (norm != nullptr) {
        scale_row(x, norm, inverse_rms(x, t.head_dim, t.eps), t.head_dim, normed);
        x = normed;
    }
    rotate(t, x, position, y);
}

// n (a multiple of 8) floats to KV elements.
template <class T>
void convert(const float* x, int n, T* out) {
    int i = 0;
    for (; i + 16 <= n; i += 16) store_as(out + i, load(x + i));
    if (i < n) {
        T last[16];
        store_as(last, load8(x + i));
        std::memcpy(out + i, last, 8 * sizeof(T));
    }
}

template <class T>
void rope(const RopeTask& t, int64_t first_row, int64_t last_row, float* scratch) {
    const int64_t dim = t.head_dim;
    float* normed = scratch;
    float* turned = scratch + dim + 16;
    T* key = reinterpret_cast<T*>(scratch + 2 * (dim + 16));
    for (int64_t r = first_row; r < last_row; ++r) {
        const float* x = t.qkv + r * (t.num_heads + 2 * t.num_kv_heads) * dim;
        float* q = t.q_out + r * t.num_heads * dim;
        for (int h = 0; h < t.num_heads; ++h, x += dim, q += dim) {
            norm_and_rotate(t, x, t.q_norm, t.positions[r], normed, q);
        }
        const int64_t offset = t.slots[r] % 16;
        T* keys = static_cast<T*>(t.layer) + t.slots[r] / 16 * t.tile_stride + offset;
        for (int h = 0; h < t.num_kv_heads; ++h, x += dim, keys += dim * 16) {
            norm_and_rotate(t, x, t.k_norm, t.positions[r], normed, turned);
            convert(turned, t.head_dim, key);
            for (int64_t d = 0; d < dim; ++d) keys[d * 16] = key[d];
        }
        T* values = static_cast<T*>(t.layer) + t.slots[r] / 16 * t.tile_stride + t.value_offset + offset * dim;
        for (int h = 0; h < t.num_kv_heads; ++h, x += dim, values += dim * 16) convert(x, t.head_dim, values);
    }
}

}  // namespace

const ElementwiseKernels elementwise_kernels = {rms_norm, silu_mul, rope<f16>, rope<float>};

}  // namespace OCTAVO_ISA
}  // namespace octavo
