// A persistent pool of threads for loops of independent chunks.
//
// The calling thread takes part, so a pool of n threads has n - 1 workers. After a loop the workers watch for the
// next one for a short while (a model is hundreds of loops in a row), then sleep: an idle server uses no CPU.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace octavo {

class ThreadPool {
public:
    // threads >= 1; throws std::invalid_argument otherwise.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

    // Calls fn(chunk, thread) for each chunk in 0 .. num_chunks - 1, in any order, on threads 0 .. num_threads() - 1;
    // returns when all are done. fn must not throw and must not call parallel_for. Calls from several threads
    // take turns.
    template <class F>
    void parallel_for(int64_t num_chunks, F&& fn) {
        using Fn = std::remove_reference_t<F>;
        run(num_chunks, [](void* f, int64_t chunk, int thread) { (*static_cast<Fn*>(f))(chunk, thread); }, &fn);
    }

private:
    using Body = void (*)(void* context, int64_t chunk, int thread);

    void run(int64_t num_chunks, Body body, void* context);
    void work(int thread);
    bool run_one(int thread);

    // The loop in progress. Written only while no chunk is left and none runs; read only by a thread that holds a chunk.
    Body body_ = nullptr;
    void* context_ = nullptr;
    int64_t num_chunks_ = 0;

    // Loop number in the upper half, chunks not yet taken in the lower: a thread that is late
    // cannot take a chunk of a loop it has not seen.
    alignas(64) std::atomic<uint64_t> ticket_{0};
    alignas(64) std::atomic<int64_t> done_{0};
    alignas(64) std::atomic<int> sleepers_{0};
    std::atomic<bool> stop_{false};
    std::mutex sleep_mutex_;
    std::condition_variable wake_;
    std::mutex call_mutex_;
    std::vector<std::thread> workers_;
};

}  // namespace octavo
