#pragma once

#include "kv/store/kv_shape.hpp"
#include "model/source.hpp"
#include "platform/memory.hpp"

#include <cstdint>
#include <string>

namespace keel {

// An estimate of the bytes that a run needs, made without a backend.
struct MemoryNeed {
    uint64_t weights = 0;           // the weights of all tensors, with matrices in the chosen type
    uint64_t weights_per_token = 0; // the part of them that a decode step reads
    uint64_t cache = 0;             // keys and values of a full context
    uint64_t work = 0;              // activations of a prefill chunk, RoPE tables, logits
    uint64_t total() const { return weights + cache + work; }
};

// The bytes that the cache of one sequence takes if nothing is evicted, without the unused parts of
// blocks. Each token adds `per_token` bytes in the layers without a window. Layers with a window
// hold at most `window_slots` tokens, of `per_windowed_token` bytes each.
struct KvBytes {
    uint64_t per_token = 0, per_windowed_token = 0;
    int64_t window_slots = 0;
    uint64_t window_bytes() const {
        return static_cast<uint64_t>(window_slots) * per_windowed_token;
    }
    uint64_t of(int64_t tokens) const;
};
// Returns the bytes of the cache. All members are 0 if head_dim is not a multiple of the types'
// blocks. `chunk`: as in memory_need().
KvBytes kv_bytes(const ModelConfig &model, keel_dtype key, keel_dtype value, int64_t context,
                 int64_t chunk = 512);

// Describes `bytes` for users: "12 KiB a token", or "3 KiB a token and 17 MiB for windows".
std::string kv_bytes_text(const KvBytes &bytes);

// `chunk`: tokens of a prefill step. `batch`: sequences that take a step together. `weight_dtypes`:
// the types that the device takes without conversion, see keel_ctx_info.
MemoryNeed memory_need(const ModelSource &source, keel_dtype weights, keel_dtype key,
                       keel_dtype value, int64_t context, int64_t chunk = 512,
                       uint64_t weight_dtypes = all_weight_dtypes, uint32_t batch = 1);

// Returns true if all matrices can have the type `weights`. Their rows must consist of whole
// blocks.
bool can_be(const ModelSource &source, keel_dtype weights);

// Returns the part of the available memory that a pipeline may use. The rest is for other
// processes.
uint64_t usable_bytes(const MemoryInfo &info);

// Returns the longest context of at most `wanted` tokens for which need(context) is at most
// `bytes`. The result is `wanted` or a multiple of 256. It is 0 if no context fits. need() must
// rise with the context.
template <typename Need> int64_t longest_context(int64_t wanted, uint64_t bytes, const Need &need) {
    constexpr int64_t step = 256;
    if (need(wanted) <= bytes) return wanted;
    int64_t fits = 0, too_much = (wanted + step - 1) / step;
    while (too_much - fits > 1) {
        const int64_t middle = fits + (too_much - fits) / 2;
        (need(middle * step) <= bytes ? fits : too_much) = middle;
    }
    return fits * step;
}

} // namespace keel
