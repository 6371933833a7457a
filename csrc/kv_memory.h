// The KV storage as kernels see it (ops/base.py).
#pragma once

#include <cstdint>

namespace octavo {

// [num_tiles, num_layers, 2, num_kv_heads, head_dim * 16]
struct KvMemory {
    void* data;
    bool half;  // float16, else float32
    int64_t num_tiles, num_layers, num_kv_heads, head_dim;

    // Elements of the keys (or the values) of one layer of a tile.
    int64_t plane() const { return num_kv_heads * head_dim * 16; }
    int64_t tile_stride() const { return num_layers * 2 * plane(); }
    void* layer(int64_t id) const { return static_cast<char*>(data) + id * 2 * plane() * (half ? 2 : 4); }
};

}  // namespace octavo
