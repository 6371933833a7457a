// Uninitialised memory for packed weights and scratch: aligned to cache lines, in huge pages where there are any.
// Or memory of another's, such as a mapped file, that is only read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace octavo {

class AlignedBuffer {
public:
    AlignedBuffer() = default;

    explicit AlignedBuffer(size_t size) : size_(size) {
        const size_t align = size >= kHuge ? kHuge : kLine;
        data_ = Pointer(static_cast<uint8_t*>(::operator new(size, std::align_val_t(align))), Free{align});
#if defined(__linux__)
        if (size >= kHuge) madvise(data_.get(), size / kHuge * kHuge, MADV_HUGEPAGE);  // a hint: may fail
#endif
    }

    // Read-only bytes that somebody else owns and keeps for as long as the buffer lives.
    static AlignedBuffer view(const uint8_t* data, size_t size) {
        AlignedBuffer buffer;
        buffer.data_ = Pointer(const_cast<uint8_t*>(data), Free{0});
        buffer.size_ = size;
        return buffer;
    }

    uint8_t* data() const { return data_.get(); }
    size_t size() const { return size_; }

private:
    static constexpr size_t kLine = 64;
    static constexpr size_t kHuge = size_t{2} << 20;

    struct Free {
        size_t align;  // 0: not ours
        void operator()(uint8_t* p) const {
            if (align != 0) ::operator delete(p, std::align_val_t(align));
        }
    };

    using Pointer = std::unique_ptr<uint8_t, Free>;

    Pointer data_{nullptr, Free{kLine}};
    size_t size_ = 0;
};

}  // namespace octavo
