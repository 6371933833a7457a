// The Python face of the kernels: the only file that knows Python.
//
// Functions take C-contiguous arrays of one exact dtype and never convert; they check shapes, then release the GIL.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "context.h"

namespace nb = nanobind;

namespace octavo {
namespace {

void bind_context(nb::module_& m) {
    nb::class_<Context>(m, "Context", "Threads and instruction set that kernel calls run with.")
        .def(nb::init<int, const std::string&>(), nb::arg("threads"), nb::arg("isa") = "")
        .def_prop_ro("threads", [](const Context& c) { return c.pool.num_threads(); })
        .def_prop_ro("isa", [](const Context& c) { return std::string(isa_name(c.isa)); });
    m.def("best_isa", [] { return std::string(isa_name(detect_isa())); }, "The best set this machine supports.");
}

}  // namespace
}  // namespace octavo

NB_MODULE(_native, m) {
    m.doc() = "Octavo's CPU kernels.";
    octavo::bind_context(m);
}
