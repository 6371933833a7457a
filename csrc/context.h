// What every kernel call needs: the threads to run on and the instruction set to use.
#pragma once

#include <string>

#include "isa.h"
#include "thread_pool.h"

namespace octavo {

struct Context {
    Context(int threads, const std::string& isa_wanted) : isa(choose_isa(isa_wanted)), pool(threads) {}

    const Isa isa;
    ThreadPool pool;
};

}  // namespace octavo
