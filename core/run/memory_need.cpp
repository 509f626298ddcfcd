#include "run/memory_need.hpp"

#include <algorithm>

namespace keel {
namespace {

uint64_t work_bytes(const ModelConfig &m, int64_t context, int64_t chunk) {
    const int64_t per_token =
        2 * m.hidden_size + (2 * m.q_size() + 2 * m.kv_size()) + 3 * m.intermediate_size;
    const int64_t tables = context * m.head_dim * (m.local_rope_theta ? 2 : 1);
    const int64_t floats = std::min(chunk, context) * per_token + tables + m.vocab_size;
    return static_cast<uint64_t>(floats) * sizeof(float);
}

} // namespace

uint64_t kv_bytes_per_token(const ModelConfig &m, keel_dtype key, keel_dtype value) {
    const auto dim = static_cast<uint64_t>(m.head_dim);
    if (dim % keel_dtype_block(key) != 0 || dim % keel_dtype_block(value) != 0) return 0;
    return static_cast<uint64_t>(m.layers * m.kv_heads) *
           (keel_dtype_row_bytes(key, dim) + keel_dtype_row_bytes(value, dim));
}

MemoryNeed memory_need(const ModelSource &source, keel_dtype weights, keel_dtype key,
                       keel_dtype value, int64_t context, int64_t chunk, uint64_t weight_dtypes) {
    MemoryNeed need;
    for (const TensorInfo &tensor : source.tensors())
        need.weights += loaded_bytes(tensor, weights, weight_dtypes);
    need.cache = static_cast<uint64_t>(context) * kv_bytes_per_token(source.config(), key, value);
    need.work = work_bytes(source.config(), context, chunk);
    return need;
}

bool can_be(const ModelSource &source, keel_dtype weights) {
    return std::all_of(
        source.tensors().begin(), source.tensors().end(), [&](const TensorInfo &tensor) {
            return tensor.shape.size() != 2 || tensor.shape[1] % keel_dtype_block(weights) == 0;
        });
}

uint64_t usable_bytes(const MemoryInfo &info) { return info.available - info.available / 8; }

} // namespace keel
