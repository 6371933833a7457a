// Instruction sets the kernels are compiled for, and the choice among them at run time.
//
// A file named *.isa.cpp is compiled once per set (CMakeLists.txt) with
//   OCTAVO_ISA        portable | avx2 | avx512 | avx512bf16, the namespace its code must live in
//   OCTAVO_ISA_LEVEL  0 | 1 | 2 | 2
// avx512bf16 is avx512 with dot products of bfloat16 pairs; only the files that use them are compiled for it.
// Such a file defines one constant table of function pointers; OCTAVO_KERNEL_TABLE in its header declares it in
// each namespace with a function that picks by Isa. Everything else in it belongs in an unnamed namespace, and it
// uses no inline function or template from a shared header: the linker would be free to keep the copy
// that was compiled for the wrong machine.
#pragma once

#include <string>

#if defined(__x86_64__) || defined(_M_X64)
#define OCTAVO_X86 1
#else
#define OCTAVO_X86 0
#endif

namespace octavo {

enum class Isa { portable = 0, avx2 = 1, avx512 = 2, avx512bf16 = 3 };

const char* isa_name(Isa isa);

// The best set that this machine and its operating system support.
Isa detect_isa();

// "" means the environment variable OCTAVO_ISA, and failing that the best one.
// Throws std::invalid_argument for an unknown name or a set that the machine lacks.
Isa choose_isa(const std::string& name);

}  // namespace octavo

#if OCTAVO_X86
#define OCTAVO_KERNEL_TABLE(Type, table)                                   \
    namespace portable { extern const Type table; }                        \
    namespace avx2 { extern const Type table; }                            \
    namespace avx512 { extern const Type table; }                          \
    inline const Type& select_##table(Isa isa) {                           \
        return isa >= Isa::avx512 ? avx512::table                          \
               : isa == Isa::avx2 ? avx2::table                            \
                                  : portable::table;                       \
    }
// For a file that is compiled for avx512bf16 too.
#define OCTAVO_KERNEL_TABLE_BF16(Type, table)                              \
    OCTAVO_KERNEL_TABLE(Type, table)                                       \
    namespace avx512bf16 { extern const Type table; }                      \
    inline const Type& select_##table##_bf16(Isa isa) {                    \
        return isa == Isa::avx512bf16 ? avx512bf16::table : select_##table(isa); \
    }
#else
#define OCTAVO_KERNEL_TABLE_BF16(Type, table) \
    OCTAVO_KERNEL_TABLE(Type, table)          \
    inline const Type& select_##table##_bf16(Isa isa) { return select_##table(isa); }
#define OCTAVO_KERNEL_TABLE(Type, table)            \
    namespace portable { extern const Type table; } \
    inline const Type& select_##table(Isa) { return portable::table; }
#endif
