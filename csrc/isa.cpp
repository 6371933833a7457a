#include "isa.h"

#include <cstdlib>
#include <stdexcept>

#if OCTAVO_X86
#include <cpuid.h>
#endif

namespace octavo {

const char* isa_name(Isa isa) {
    switch (isa) {
        case Isa::avx512bf16: return "avx512bf16";
        case Isa::avx512: return "avx512";
        case Isa::avx2: return "avx2";
        default: return "portable";
    }
}

Isa detect_isa() {
#if OCTAVO_X86
    __builtin_cpu_init();  // the builtins below also ask whether the system saves the wide registers
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1u << 29)) != 0;
    if (!f16c || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        return Isa::portable;
    }
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vnni");
    if (!wide) return Isa::avx2;
    const bool pairs = __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 5)) != 0;
    return pairs ? Isa::avx512bf16 : Isa::avx512;
#else
    return Isa::portable;
#endif
}

Isa choose_isa(const std::string& name) {
    std::string wanted = name;
    if (wanted.empty()) {
        const char* env = std::getenv("OCTAVO_ISA");
        if (env != nullptr) wanted = env;
    }
    const Isa best = detect_isa();
    if (wanted.empty()) return best;
    for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512, Isa::avx512bf16}) {
        if (wanted != isa_name(isa)) continue;
        if (static_cast<int>(isa) > static_cast<int>(best)) {
            throw std::invalid_argument("OCTAVO_ISA: this machine cannot run '" + wanted + "', its best is '" +
                                        isa_name(best) + "'; unset it or choose that");
        }
        return isa;
    }
    throw std::invalid_argument("OCTAVO_ISA: expected portable, avx2, avx512 or avx512bf16, got '" + wanted + "'");
}

}  // namespace octavo
