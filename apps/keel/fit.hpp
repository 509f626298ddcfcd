#pragma once

#include "model/source.hpp"
#include "platform/memory.hpp"

#include <cstdint>
#include <string>

namespace keel::cli {

// What a run takes, in bytes, as far as it can be told without a backend.
struct MemoryNeed {
    uint64_t weights = 0; // of all tensors, matrices in the type asked for
    uint64_t cache = 0;   // keys and values of a full context
    uint64_t work = 0;    // activations of a prefill chunk, RoPE tables, logits
    uint64_t total() const { return weights + cache + work; }
};

// A token's keys and values in all layers; 0 if the heads are no multiple of the type's blocks.
uint64_t kv_bytes_per_token(const ModelConfig &model, keel_dtype key, keel_dtype value);

MemoryNeed memory_need(const ModelSource &source, keel_dtype weights, keel_dtype key, keel_dtype value,
                       int64_t context);

// Whether all matrices can be of that type: rows are whole blocks.
bool can_be(const ModelSource &source, keel_dtype weights);

// The part of the available memory that a pipeline made for it may plan with; the rest is for everybody else.
uint64_t usable_bytes(const MemoryInfo &info);

// The longest context, up to the model's, whose cache fits beside the weights: a multiple of 256. 0: none does.
// Unknown memory holds everything.
int64_t context_that_fits(const ModelSource &source, keel_dtype weights, keel_dtype key, keel_dtype value,
                          const MemoryInfo &info);

// Choices that fit the memory, with the reasons in words.
struct Fit {
    keel_dtype weights = KEEL_DTYPE_NONE; // NONE: as stored
    keel_dtype kv = KEEL_DTYPE_F16;
    int64_t context = 0;
    bool fits = true; // false: even the smallest choice does not
    std::string weights_note, kv_note, context_note;
};
Fit fit_to_memory(const ModelSource &source, const MemoryInfo &info);

} // namespace keel::cli
