// The Python face of the kernels. Only this file, program_bindings.cpp and python_arrays.h know Python.
//
// Functions take C-contiguous arrays of one exact dtype and never convert; they check shapes, then release the GIL.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "argmax.h"
#include "attention.h"
#include "context.h"
#include "elementwise.h"
#include "embedding.h"
#include "linear.h"
#include "machine_peak.h"
#include "program_bindings.h"
#include "python_arrays.h"
#include "quantize.h"

namespace nb = nanobind;

namespace octavo {
namespace {

template <class T, int N>
using Array = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
using Bytes2 = Array<const uint8_t, 2>;
using Floats1 = Array<const float, 1>;
using Floats2 = Array<const float, 2>;
using FloatsOut2 = Array<float, 2>;
using Ints1 = Array<const int32_t, 1>;

// Throws ValueError unless got == expected; `what` names the number.
void expect(const char* what, int64_t expected, size_t got) {
    if (dim(got) != expected) {
        throw std::invalid_argument(std::string(what) + ": expected " + std::to_string(expected) + ", got " +
                                    std::to_string(got));
    }
}

void bind_context(nb::module_& m) {
    nb::class_<Context>(m, "Context", "Threads and instruction set that kernel calls run with.")
        .def(nb::init<int, const std::string&>(), nb::arg("threads"), nb::arg("isa") = "")
        .def_prop_ro("threads", [](const Context& c) { return c.pool.num_threads(); })
        .def_prop_ro("isa", [](const Context& c) { return std::string(isa_name(c.isa)); });
    m.def("best_isa", [] { return std::string(isa_name(detect_isa())); }, "The best set this machine supports.");
}

Linear* make_linear(Context& context, const nb::list& parts, int64_t k) {
    std::vector<RawMatrix> matrices;
    for (const nb::handle part : parts) {
        const auto fields = nb::cast<nb::tuple>(part);  // name, type, data
        const WeightType type = parse_weight_type(nb::cast<std::string>(fields[1]));
        const auto data = nb::cast<Bytes2>(fields[2], false);
        expect("bytes of a row", row_bytes(type, k), data.shape(1));
        matrices.push_back({nb::cast<std::string>(fields[0]), type, data.data(), dim(data.shape(0))});
    }
    const nb::gil_scoped_release release;
    return new Linear(matrices, k, context.pool);
}

// The bytes have to outlive the Linear: the binding keeps their array alive.
Linear* linear_from_packed(const nb::list& parts, int64_t k, const Array<const uint8_t, 1>& packed) {
    std::vector<PackedMatrix> matrices;
    for (const nb::handle part : parts) {
        const auto fields = nb::cast<nb::tuple>(part);  // type, outputs
        const auto num_outputs = nb::cast<int64_t>(fields[1]);
        if (num_outputs < 1) throw std::invalid_argument("packed weights: expected 1 or more outputs");
        matrices.push_back({parse_weight_type(nb::cast<std::string>(fields[0])), num_outputs});
    }
    return new Linear(matrices, k, packed.data(), packed.shape(0));
}

void run_linear(Context& context, const Linear& weight, const Floats2& x, const std::optional<Floats1>& bias,
                const FloatsOut2& out) {
    expect("linear: columns of x", weight.k(), x.shape(1));
    expect("linear: rows of out", dim(x.shape(0)), out.shape(0));
    expect("linear: columns of out", weight.num_outputs(), out.shape(1));
    if (bias) expect("linear: length of bias", weight.num_outputs(), bias->shape(0));
    const float* b = bias ? bias->data() : nullptr;
    const nb::gil_scoped_release release;
    weight.run(context, StoredRows(x.data(), weight.k()), dim(x.shape(0)), b, out.data());
}

void run_quantize(Context& context, const std::string& from_name, const Bytes2& in, const std::string& to_name, int64_t k,
                  const Array<uint8_t, 2>& out) {
    const WeightType from = parse_weight_type(from_name), to = parse_weight_type(to_name);
    expect("quantize: bytes of a row", row_bytes(from, k), in.shape(1));
    expect("quantize: bytes of a row of out", row_bytes(to, k), out.shape(1));
    expect("quantize: rows of out", dim(in.shape(0)), out.shape(0));
    const nb::gil_scoped_release release;
    quantize_rows(context.pool, from, in.data(), dim(in.shape(0)), k, to, out.data());
}

void run_embedding(Context& context, const std::string& type_name, const Bytes2& table, const Ints1& ids,
                   const FloatsOut2& out) {
    const WeightType type = parse_weight_type(type_name);
    expect("embedding: bytes of a table row", row_bytes(type, dim(out.shape(1))), table.shape(1));
    expect("embedding: rows of out", dim(ids.shape(0)), out.shape(0));
    const nb::gil_scoped_release release;
    look_up(type, table.data(), dim(table.shape(0)), dim(out.shape(1)), ids.data(), dim(ids.shape(0)), out.data(),
            context.pool);
}

void bind_linear(nb::module_& m) {
    nb::class_<Linear>(m, "Linear", "Packed weights of a linear map.")
        .def_prop_ro("k", &Linear::k)
        .def_prop_ro("num_outputs", &Linear::num_outputs)
        .def_prop_ro("num_bytes", &Linear::num_bytes)
        .def_prop_ro("packed", [](const Linear& l) {
            return nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>>(l.packed(), {l.num_bytes()}, nb::find(l));
        });
    m.attr("PACKED_LAYOUT") = kPackedLayout;
    m.def("linear_from_packed", &linear_from_packed, nb::arg("parts"), nb::arg("k"), nb::arg("packed").noconvert(),
          nb::rv_policy::take_ownership, nb::keep_alive<0, 3>());
    m.def("make_linear", &make_linear, nb::arg("context"), nb::arg("parts"), nb::arg("k"),
          nb::rv_policy::take_ownership);
    m.def("linear", &run_linear, nb::arg("context"), nb::arg("weight"), nb::arg("x").noconvert(),
          nb::arg("bias").noconvert().none(), nb::arg("out").noconvert());
    m.def("quantize", &run_quantize, nb::arg("context"), nb::arg("from"), nb::arg("data").noconvert(), nb::arg("to"),
          nb::arg("k"), nb::arg("out").noconvert());
    m.def("row_bytes", [](const std::string& type, int64_t k) { return row_bytes(parse_weight_type(type), k); },
          nb::arg("type"), nb::arg("k"));
    m.def("embedding", &run_embedding, nb::arg("context"), nb::arg("type"), nb::arg("table").noconvert(), nb::arg("ids").noconvert(),
          nb::arg("out").noconvert());
}

// ---- attention, rotary, norms, activation, copies: arrays are checked by hand, so that a wrong one is a ValueError

std::vector<int32_t> int_vector(const AnyIn& a, const char* name) {
    const int32_t* p = checked<int32_t>(a, name, {-1});
    return std::vector<int32_t>(p, p + a.shape(0));
}

void init_attention_plan(AttentionPlan* self, const AnyIn& row_starts, const AnyIn& context_lens, const AnyIn& tiles,
                         const AnyIn& tile_starts) {
    new (self) AttentionPlan(int_vector(row_starts, "row_starts"), int_vector(context_lens, "context_lens"),
                             int_vector(tiles, "tiles"), int_vector(tile_starts, "tile_starts"));
}

void run_attention(Context& context, const AttentionPlan& plan, const AnyOut& kv, int64_t layer, int num_heads,
                   int num_kv_heads, int head_dim, float scale, std::optional<int64_t> window, const AnyIn& q,
                   const AnyOut& out) {
    const KvMemory memory = kv_memory(kv, num_kv_heads, head_dim);
    const Shape shape = {plan.num_rows(), static_cast<int64_t>(num_heads) * head_dim};
    const float* from = checked<float>(q, "q", shape);
    float* to = checked<float>(out, "out", shape);
    const AttentionLayer task{layer, num_heads, scale, checked_window(window)};
    const nb::gil_scoped_release release;
    paged_attention(context, plan, memory, task, from, to);
}

void run_rope(Context& context, const AnyIn& qkv, const AnyOut& kv, int64_t layer, int num_heads, int num_kv_heads,
              int head_dim, const AnyIn& positions, const AnyIn& slots, const AnyIn& cos, const AnyIn& sin,
              bool interleaved, const std::optional<AnyIn>& q_norm, const std::optional<AnyIn>& k_norm, float eps,
              const AnyOut& out) {
    const KvMemory memory = kv_memory(kv, num_kv_heads, head_dim);
    const int64_t q_size = static_cast<int64_t>(num_heads) * head_dim;
    RopeTask t = rope_constants(num_heads, num_kv_heads, head_dim, cos, sin, interleaved, q_norm, k_norm, eps);
    t.qkv = checked<float>(qkv, "qkv", {-1, q_size + 2 * static_cast<int64_t>(num_kv_heads) * head_dim});
    const int64_t rows = dim(qkv.shape(0));
    t.q_out = checked<float>(out, "out", {rows, q_size});
    t.positions = checked<int32_t>(positions, "positions", {rows});
    t.slots = checked<int32_t>(slots, "slots", {rows});
    const nb::gil_scoped_release release;
    rope_and_store(context, t, memory, layer, rows, dim(cos.shape(0)));
}

void run_rms_norm(Context& context, const AnyIn& x, const AnyIn& weight, float eps,
                  const std::optional<AnyOut>& residual, const AnyOut& out) {
    NormTask t{};
    t.x = checked<float>(x, "x", {-1, -1});
    const int64_t rows = dim(x.shape(0));
    t.size = dim(x.shape(1));
    t.weight = checked<float>(weight, "weight", {t.size});
    t.residual = residual ? checked<float>(*residual, "residual", {rows, t.size}) : nullptr;
    t.out = checked<float>(out, "out", {rows, t.size});
    t.eps = eps;
    const nb::gil_scoped_release release;
    rms_norm(context, t, rows);
}

void run_silu_mul(Context& context, const AnyIn& gate_up, const AnyOut& out) {
    float* to = checked<float>(out, "out", {-1, -1});
    const int64_t rows = dim(out.shape(0)), size = dim(out.shape(1));
    const float* from = checked<float>(gate_up, "gate_up", {rows, 2 * size});
    const nb::gil_scoped_release release;
    silu_mul(context, from, rows, size, to);
}

void run_copy_tiles(Context& context, const AnyOut& kv, const AnyIn& src, const AnyIn& dst) {
    const int32_t* from = checked<int32_t>(src, "src", {-1});
    const int64_t n = dim(src.shape(0));
    const int32_t* to = checked<int32_t>(dst, "dst", {n});
    if (kv.ndim() < 1 || array_text(kv).back() != ']') {
        throw std::invalid_argument("kv: expected a C-contiguous array of tiles, got " + array_text(kv));
    }
    const int64_t tiles = dim(kv.shape(0));
    const int64_t bytes = tiles == 0 ? 0 : dim(kv.nbytes()) / tiles;
    const nb::gil_scoped_release release;
    copy_tiles(context, kv.data(), tiles, bytes, from, to, n);
}

void bind_attention(nb::module_& m) {
    nb::class_<AttentionPlan>(m, "AttentionPlan", "The sequences of a step, checked, with the work lists for them.")
        .def("__init__", &init_attention_plan, nb::arg("row_starts"), nb::arg("context_lens"), nb::arg("tiles"),
             nb::arg("tile_starts"))
        .def_prop_ro("num_rows", &AttentionPlan::num_rows)
        .def_prop_ro("num_seqs", &AttentionPlan::num_seqs)
        .def_prop_ro("num_shared_items", &AttentionPlan::num_shared_items);
    m.def("paged_attention", &run_attention, nb::arg("context"), nb::arg("plan"), nb::arg("kv"), nb::arg("layer"),
          nb::arg("num_heads"), nb::arg("num_kv_heads"), nb::arg("head_dim"), nb::arg("scale"),
          nb::arg("window").none(), nb::arg("q"), nb::arg("out"));
    m.def("rope_and_store", &run_rope, nb::arg("context"), nb::arg("qkv"), nb::arg("kv"), nb::arg("layer"),
          nb::arg("num_heads"), nb::arg("num_kv_heads"), nb::arg("head_dim"), nb::arg("positions"), nb::arg("slots"),
          nb::arg("cos"), nb::arg("sin"), nb::arg("interleaved"), nb::arg("q_norm").none(), nb::arg("k_norm").none(),
          nb::arg("eps"), nb::arg("out"));
}

nb::list run_argmax(Context& context, const AnyIn& x) {
    const float* from = checked<float>(x, "x", {-1, -1});
    std::vector<int32_t> out(x.shape(0));
    {
        const nb::gil_scoped_release release;
        argmax(context, from, dim(x.shape(0)), dim(x.shape(1)), out.data());
    }
    nb::list columns;
    for (const int32_t column : out) columns.append(column);
    return columns;
}

void bind_elementwise(nb::module_& m) {
    m.def("rms_norm", &run_rms_norm, nb::arg("context"), nb::arg("x"), nb::arg("weight"), nb::arg("eps"),
          nb::arg("residual").none(), nb::arg("out"));
    m.def("silu_mul", &run_silu_mul, nb::arg("context"), nb::arg("gate_up"), nb::arg("out"));
    m.def("argmax", &run_argmax, nb::arg("context"), nb::arg("x"));
    m.def("copy_tiles", &run_copy_tiles, nb::arg("context"), nb::arg("kv"), nb::arg("src"), nb::arg("dst"));
}

void bind_peaks(nb::module_& m) {
    m.def("peak_read", [](Context& context, const Array<const uint8_t, 1>& data) {
        const nb::gil_scoped_release release;
        return peak_read(context, data.data(), dim(data.shape(0)));
    }, nb::arg("context"), nb::arg("data").noconvert());
    m.def("peak_fma", &peak_fma, nb::arg("context"), nb::arg("rounds"), nb::call_guard<nb::gil_scoped_release>());
    m.def("peak_dot", &peak_dot, nb::arg("context"), nb::arg("rounds"), nb::call_guard<nb::gil_scoped_release>());
    m.def("peak_dot_name", &peak_dot_name, nb::arg("context"));
}

}  // namespace
}  // namespace octavo

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);  // a process that is told to end at once does not unwind
    m.doc() = "Octavo's CPU kernels.";
    octavo::bind_context(m);
    octavo::bind_linear(m);
    octavo::bind_attention(m);
    octavo::bind_elementwise(m);
    octavo::bind_program(m);
    octavo::bind_peaks(m);
}
