#include "run/memory_need.hpp"

#include "base/display.hpp"
#include "graph/weights.hpp"
#include "run/layer_split.hpp"

#include <algorithm>

namespace keel {
namespace {

constexpr uint32_t usual_block = 64; // the usual size of a block, in slots; a backend can use
                                     // another size

// Returns the bytes of the work memory. A step has a chunk of one sequence, and one token of each
// of the other sequences. `batch` is the number of sequences.
uint64_t work_bytes(const ModelConfig &m, int64_t context, int64_t chunk, int64_t batch) {
    const int64_t per_token = 2 * m.hidden_size + (2 * m.q_size() + 2 * m.kv_size()) +
                              3 * m.active_intermediate() + m.experts.count +
                              m.experts.used * std::max(m.hidden_size, 2 * m.experts.size);
    const int64_t tables = context * m.rot * (m.has_two_ropes() ? 2 : 1);
    const int64_t rows = std::min(chunk, context) + batch - 1;
    const int64_t floats = rows * per_token + tables + batch * m.vocab_size;
    return static_cast<uint64_t>(floats) * sizeof(float);
}

} // namespace

KvBytes kv_bytes(const ModelConfig &m, keel_dtype key, keel_dtype value, int64_t context,
                 int64_t chunk) {
    KvBytes bytes;
    const auto dim = static_cast<uint64_t>(m.head_dim);
    if (dim % keel_dtype_block(key) != 0 || dim % keel_dtype_block(value) != 0) return bytes;
    const uint64_t per_layer = static_cast<uint64_t>(m.kv_heads) *
                               (keel_dtype_row_bytes(key, dim) + keel_dtype_row_bytes(value, dim));
    const LayerSplit split(m, context);
    bytes.per_token = per_layer * (split.model_layers() - split.model_windowed());
    if (split.window() == 0) return bytes;
    bytes.per_windowed_token = per_layer * split.model_windowed();
    bytes.window_slots =
        std::min(context, window_slots(split.window(), std::min(chunk, context), usual_block));
    return bytes;
}

uint64_t KvBytes::of(int64_t tokens) const {
    return static_cast<uint64_t>(tokens) * per_token +
           static_cast<uint64_t>(std::min(tokens, window_slots)) * per_windowed_token;
}

std::string kv_bytes_text(const KvBytes &bytes) {
    if (bytes.window_slots == 0) return format_bytes(bytes.per_token) + " a token";
    const std::string windows = format_bytes(bytes.window_bytes()) + " for windows";
    return bytes.per_token == 0 ? windows
                                : format_bytes(bytes.per_token) + " a token and " + windows;
}

MemoryNeed memory_need(const ModelSource &source, keel_dtype weights, keel_dtype key,
                       keel_dtype value, int64_t context, int64_t chunk, uint64_t weight_dtypes,
                       uint32_t batch) {
    MemoryNeed need;
    for (const TensorInfo &tensor : source.tensors())
        need.weights += loaded_bytes(tensor, weights, weight_dtypes);
    LoadOptions options;
    options.dtype = weights;
    options.weight_dtypes = weight_dtypes;
    need.weights_per_token = weight_bytes(source, options).per_token;
    need.cache = kv_bytes(source.config(), key, value, context, chunk).of(context);
    need.work = work_bytes(source.config(), context, chunk, batch);
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
