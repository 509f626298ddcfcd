#pragma once

#include "model/source.hpp"
#include "platform/memory.hpp"

#include <cstdint>

namespace keel {

// What a run takes, in bytes, as far as it can be told without a backend.
struct MemoryNeed {
    uint64_t weights = 0; // of all tensors, matrices in the type asked for
    uint64_t cache = 0;   // keys and values of a full context
    uint64_t work = 0;    // activations of a prefill chunk, RoPE tables, logits
    uint64_t total() const { return weights + cache + work; }
};

// A token's keys and values in all layers; 0 if the heads are no multiple of the type's blocks.
uint64_t kv_bytes_per_token(const ModelConfig &model, keel_dtype key, keel_dtype value);

// `chunk`: tokens of a prefill step. `weight_dtypes`: what the device takes as it is stored.
MemoryNeed memory_need(const ModelSource &source, keel_dtype weights, keel_dtype key,
                       keel_dtype value, int64_t context, int64_t chunk = 512,
                       uint64_t weight_dtypes = all_weight_dtypes);

// Whether all matrices can be of that type: rows are whole blocks.
bool can_be(const ModelSource &source, keel_dtype weights);

// The part of the available memory that a pipeline made for it may plan with; the rest is for other
// processes.
uint64_t usable_bytes(const MemoryInfo &info);

// The longest context up to `wanted` for which need(context), which grows with it, is at most
// `bytes`: `wanted` itself, or a multiple of 256. 0: none.
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
