#pragma once

#include "model/config.hpp"
#include "model/source.hpp"

#include <map>
#include <string>
#include <vector>

namespace keel {

// "window 4096 in 13 of 26 layers". Empty if no layer has a window.
std::string window_text(const ModelConfig &config);

// Features of this model that Llama 2 lacks, except windows and RoPE scaling, as text for users:
// {"norms on queries and keys", "logits capped at 30", ...}.
std::vector<std::string> architecture_facts(const ModelConfig &config);

// "feed-forward 768", or "8 of 128 experts of size 768".
std::string feed_forward_text(const ModelConfig &config);

// A number of parameters: "30.53 billion".
std::string count_text(uint64_t n);

// The parameters of RoPE: "theta 500000, Llama 3 scaling by 32 from 8192 tokens".
std::string rope_text(const ModelConfig &config);

struct TensorSum {
    uint64_t tensors = 0, elements = 0, bytes = 0;
};
// Sums for each stored type, as the files spell the type.
std::map<std::string, TensorSum> sums_by_dtype(const ModelSource &source);

// Conversions that only some backends need, because others take the stored type.
std::vector<Conversion> sometimes_converted(const ModelSource &source);

} // namespace keel
