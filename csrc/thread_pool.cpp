#include "thread_pool.h"

#include <chrono>
#include <stdexcept>
#include <string>

#include "isa.h"

#if OCTAVO_X86
#include <immintrin.h>
#endif

namespace octavo {
namespace {

constexpr auto kSpin = std::chrono::microseconds(80);
constexpr int kPausesPerLook = 32;
constexpr int kMaxThreads = 1024;

void pause() {
#if OCTAVO_X86
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

constexpr uint64_t kLeft = 0xffffffffu;

}  // namespace

ThreadPool::ThreadPool(int threads) {
    if (threads < 1 || threads > kMaxThreads) {
        throw std::invalid_argument("threads: expected 1 to 1024, got " + std::to_string(threads));
    }
    workers_.reserve(static_cast<size_t>(threads - 1));
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
    {
        const std::lock_guard<std::mutex> lock(sleep_mutex_);
        stop_.store(true);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

bool ThreadPool::run_one(int thread) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while ((ticket & kLeft) != 0) {
        if (ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acquire)) {
            body_(context_, num_chunks_ - static_cast<int64_t>(ticket & kLeft), thread);
            done_.fetch_add(1, std::memory_order_release);
            return true;
        }
    }
    return false;
}

void ThreadPool::work(int thread) {
    auto last = std::chrono::steady_clock::now();
    while (!stop_.load(std::memory_order_relaxed)) {
        bool worked = false;
        while (run_one(thread)) worked = true;
        const auto now = std::chrono::steady_clock::now();
        if (worked) last = now;
        if (now - last < kSpin) {
            for (int i = 0; i < kPausesPerLook && (ticket_.load(std::memory_order_relaxed) & kLeft) == 0; ++i) pause();
            continue;
        }
        std::unique_lock<std::mutex> lock(sleep_mutex_);
        sleepers_.fetch_add(1);
        wake_.wait(lock, [this] { return stop_.load() || (ticket_.load() & kLeft) != 0; });
        sleepers_.fetch_sub(1);
        last = std::chrono::steady_clock::now();
    }
}

void ThreadPool::run(int64_t num_chunks, Body body, void* context) {
    if (num_chunks <= 0) return;
    if (num_chunks == 1 || workers_.empty()) {
        for (int64_t i = 0; i < num_chunks; ++i) body(context, i, 0);
        return;
    }
    const std::lock_guard<std::mutex> turn(call_mutex_);
    body_ = body;
    context_ = context;
    num_chunks_ = num_chunks;
    done_.store(0, std::memory_order_relaxed);
    const uint64_t loop = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
    ticket_.store(loop << 32 | static_cast<uint64_t>(num_chunks));
    if (sleepers_.load() > 0) {
        { const std::lock_guard<std::mutex> lock(sleep_mutex_); }  // a worker between its look and its sleep
        wake_.notify_all();
    }
    while (run_one(0)) {
    }
    for (int spins = 0; done_.load(std::memory_order_acquire) < num_chunks; ++spins) {
        if (spins < 4000) {
            pause();
        } else {
            std::this_thread::yield();  // more threads than cores: let the one that holds the last chunk run
        }
    }
}

}  // namespace octavo
