// The Python face of programs.
#pragma once

#include <nanobind/nanobind.h>

namespace octavo {

void bind_program(nanobind::module_& m);

}  // namespace octavo
