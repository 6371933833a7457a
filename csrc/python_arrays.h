// Checks of arrays that come from Python, for the bindings: a wrong one is a ValueError that says what was expected.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "elementwise_kernels.h"
#include "kv_memory.h"

namespace nb = nanobind;

namespace octavo {

inline int64_t dim(size_t n) { return static_cast<int64_t>(n); }

using AnyIn = nb::ndarray<nb::ro, nb::device::cpu>;
using AnyOut = nb::ndarray<nb::device::cpu>;
using Shape = std::initializer_list<int64_t>;  // -1: any size

inline std::string shape_text(const char* type, const Shape& shape) {
    std::string text = std::string(type) + " [";
    for (const int64_t n : shape) {
        if (text.back() != '[') text += ", ";
        text += n < 0 ? "any" : std::to_string(n);
    }
    return text + "]";
}

template <class A>
std::string array_text(const A& a) {
    const nb::dlpack::dtype type = a.dtype();
    const char* kinds[] = {"int", "uint", "float"};
    std::string text = type.code < 3 ? kinds[type.code] : "other";
    text += std::to_string(type.bits) + " [";
    int64_t contiguous = 1;
    bool in_order = true;
    for (size_t i = a.ndim(); i-- > 0;) {
        in_order = in_order && (a.shape(i) == 1 || a.stride(i) == contiguous);
        contiguous *= dim(a.shape(i));
    }
    for (size_t i = 0; i < a.ndim(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(a.shape(i));
    return text + (in_order || contiguous == 0 ? "]" : "], not C-contiguous");
}

template <class A>
bool fits(const A& a, const Shape& shape) {
    if (a.ndim() != shape.size()) return false;
    int64_t contiguous = 1;
    bool in_order = true, empty = false;
    for (size_t i = a.ndim(); i-- > 0;) {
        const int64_t wanted = shape.begin()[i], n = dim(a.shape(i));
        if (wanted >= 0 && n != wanted) return false;
        in_order = in_order && (n == 1 || a.stride(i) == contiguous);
        empty = empty || n == 0;
        contiguous *= n;
    }
    return in_order || empty;
}

template <class T>
const char* type_text() {
    return std::is_same_v<T, float> ? "float32" : std::is_same_v<T, uint8_t> ? "uint8" : "int32";
}

// The data of a C-contiguous array of this type and shape; ValueError for any other.
template <class T, class A>
auto checked(const A& a, const char* name, const Shape& shape) {
    if (a.dtype() != nb::dtype<T>() || !fits(a, shape)) {
        throw std::invalid_argument(std::string(name) + ": expected C-contiguous " +
                                    shape_text(type_text<T>(), shape) + ", got " +
                                    array_text(a));
    }
    using Pointer = std::conditional_t<std::is_same_v<A, AnyIn>, const T*, T*>;
    return static_cast<Pointer>(a.data());
}

template <class T>
const T* checked(const std::optional<AnyIn>& a, const char* name, const Shape& shape) {
    return a ? checked<T>(*a, name, shape) : nullptr;
}

inline bool is_float(const AnyOut& a, int bits) {
    return a.dtype().code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float) && a.dtype().bits == bits;
}

inline KvMemory kv_memory(const AnyOut& kv, int num_kv_heads, int head_dim) {
    const Shape shape = {-1, -1, 2, num_kv_heads, static_cast<int64_t>(head_dim) * 16};
    if (head_dim < 8 || head_dim % 8 != 0) {
        throw std::invalid_argument("head_dim: expected a multiple of 8, got " + std::to_string(head_dim));
    }
    if ((!is_float(kv, 16) && !is_float(kv, 32)) || !fits(kv, shape)) {
        throw std::invalid_argument("kv: expected C-contiguous " + shape_text("float16 or float32", shape) + ", got " +
                                    array_text(kv));
    }
    return {kv.data(), is_float(kv, 16), dim(kv.shape(0)), dim(kv.shape(1)), num_kv_heads, head_dim};
}

// The fields of a rotary task that do not change from step to step.
inline RopeTask rope_constants(int num_heads, int num_kv_heads, int head_dim, const AnyIn& cos, const AnyIn& sin,
                               bool interleaved, const std::optional<AnyIn>& q_norm, const std::optional<AnyIn>& k_norm,
                               float eps) {
    RopeTask t{};
    t.cos = checked<float>(cos, "rope.cos", {-1, -1});
    const int64_t num_positions = dim(cos.shape(0)), pairs = dim(cos.shape(1));
    t.sin = checked<float>(sin, "rope.sin", {num_positions, pairs});
    if (2 * pairs > head_dim) {
        throw std::invalid_argument("rope.cos: expected at most " + std::to_string(head_dim / 2) +
                                    " pairs (half the head size), got " + std::to_string(pairs));
    }
    t.q_norm = checked<float>(q_norm, "q_norm", {head_dim});
    t.k_norm = checked<float>(k_norm, "k_norm", {head_dim});
    t.eps = eps;
    t.num_heads = num_heads;
    t.num_kv_heads = num_kv_heads;
    t.head_dim = head_dim;
    t.num_pairs = static_cast<int>(pairs);
    t.interleaved = interleaved;
    return t;
}

}  // namespace octavo
