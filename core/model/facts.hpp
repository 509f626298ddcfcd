#pragma once

#include "model/config.hpp"
#include "model/source.hpp"

#include <map>
#include <string>
#include <vector>

namespace keel {

// "window 4096 in 13 of 26 layers", or empty where all layers see all.
std::string window_text(const ModelConfig &config);

// What this model does that Llama 2 does not, apart from windows and RoPE scaling, in words for
// people: {"norms on queries and keys", "logits capped at 30", ...}.
std::vector<std::string> architecture_facts(const ModelConfig &config);

// "theta 500000, Llama 3 scaling by 32 from 8192 tokens"
std::string rope_text(const ModelConfig &config);

struct TensorSum {
    uint64_t tensors = 0, elements = 0, bytes = 0;
};
// By stored type, as the files spell it.
std::map<std::string, TensorSum> sums_by_dtype(const ModelSource &source);

// Conversions that some backends need and others do not, because they take the stored type.
std::vector<Conversion> sometimes_converted(const ModelSource &source);

} // namespace keel
