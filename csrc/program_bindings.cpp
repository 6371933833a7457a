#include "program_bindings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "program.h"
#include "python_arrays.h"

namespace octavo {
namespace {

int add_embedding(Program& self, const std::string& type_name, const AnyIn& table, int64_t width) {
    const WeightType type = parse_weight_type(type_name);
    const auto* rows = checked<uint8_t>(table, "table", {-1, row_bytes(type, width)});
    return self.embedding(type, rows, dim(table.shape(0)), width);
}

int add_norm(Program& self, int x, const AnyIn& weight, float eps, std::optional<int> residual) {
    const float* by = checked<float>(weight, "weight", {-1});
    return self.rms_norm(x, by, dim(weight.shape(0)), eps, residual);
}

int add_linear(Program& self, int x, const Linear& map, const std::optional<AnyIn>& bias) {
    return self.linear(x, map, checked<float>(bias, "bias", {map.num_outputs()}));
}

int add_rope(Program& self, int qkv, int64_t layer, int num_heads, int num_kv_heads, int head_dim, const AnyIn& cos,
             const AnyIn& sin, bool interleaved, const std::optional<AnyIn>& q_norm, const std::optional<AnyIn>& k_norm,
             float eps) {
    const RopeTask task = rope_constants(num_heads, num_kv_heads, head_dim, cos, sin, interleaved, q_norm, k_norm, eps);
    return self.rope_and_store(qkv, task, layer, dim(cos.shape(0)));
}

int add_attention(Program& self, int q, int64_t layer, int num_heads, int num_kv_heads, int head_dim, float scale,
                  std::optional<int64_t> window) {
    return self.paged_attention(q, {layer, num_heads, scale, checked_window(window)}, num_kv_heads, head_dim);
}

void run(Program& self, const AnyIn& token_ids, const AnyIn& positions, const AnyIn& slots,
         const AttentionPlan& attention, const AnyIn& logits_rows, const AnyOut& kv, const AnyOut& out) {
    StepInputs in{};
    in.token_ids = checked<int32_t>(token_ids, "token_ids", {-1});
    in.num_rows = dim(token_ids.shape(0));
    in.positions = checked<int32_t>(positions, "positions", {in.num_rows});
    in.slots = checked<int32_t>(slots, "slots", {in.num_rows});
    in.attention = &attention;
    in.logits_rows = checked<int32_t>(logits_rows, "logits_rows", {-1});
    in.num_logits_rows = dim(logits_rows.shape(0));
    if (self.num_kv_heads() > 0) in.kv = kv_memory(kv, self.num_kv_heads(), self.head_dim());
    float* to = checked<float>(out, "out", {in.num_logits_rows, self.width()});
    const nb::gil_scoped_release release;
    self.run(in, to);
}

}  // namespace

void bind_program(nb::module_& m) {
    // keep_alive: a program holds pointers into what it was recorded with.
    nb::class_<Program>(m, "Program", "A forward pass, recorded op by op and run as one call.")
        .def(nb::init<Context&>(), nb::arg("context"), nb::keep_alive<1, 2>())
        .def("embedding", &add_embedding, nb::arg("type"), nb::arg("table"), nb::arg("width"), nb::keep_alive<1, 3>())
        .def("rms_norm", &add_norm, nb::arg("x"), nb::arg("weight"), nb::arg("eps"), nb::arg("residual").none(),
             nb::keep_alive<1, 3>())
        .def("linear", &add_linear, nb::arg("x"), nb::arg("weight"), nb::arg("bias").none(), nb::keep_alive<1, 3>(),
             nb::keep_alive<1, 4>())
        .def("rope_and_store", &add_rope, nb::arg("qkv"), nb::arg("layer"), nb::arg("num_heads"),
             nb::arg("num_kv_heads"), nb::arg("head_dim"), nb::arg("cos"), nb::arg("sin"), nb::arg("interleaved"),
             nb::arg("q_norm").none(), nb::arg("k_norm").none(), nb::arg("eps"), nb::keep_alive<1, 7>(),
             nb::keep_alive<1, 8>(), nb::keep_alive<1, 10>(), nb::keep_alive<1, 11>())
        .def("paged_attention", &add_attention, nb::arg("q"), nb::arg("layer"), nb::arg("num_heads"),
             nb::arg("num_kv_heads"), nb::arg("head_dim"), nb::arg("scale"), nb::arg("window").none())
        .def("silu_mul", &Program::silu_mul, nb::arg("gate_up"))
        .def("take_logits_rows", &Program::take_logits_rows, nb::arg("x"))
        .def("finish", &Program::finish, nb::arg("result"))
        .def_prop_ro("width", &Program::width)
        .def_prop_ro("num_instructions", &Program::num_instructions)
        .def_prop_ro("num_buffers", &Program::num_buffers)
        .def("run", &run, nb::arg("token_ids"), nb::arg("positions"), nb::arg("slots"), nb::arg("attention"),
             nb::arg("logits_rows"), nb::arg("kv"), nb::arg("out"));
}

}  // namespace octavo
