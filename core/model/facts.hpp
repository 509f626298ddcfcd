#pragma once

#include "model/config.hpp"

#include <string>
#include <vector>

namespace keel {

// "window 4096 in 13 of 26 layers", or empty where all layers see all.
std::string window_text(const ModelConfig &config);

// What this model does that Llama 2 does not, apart from windows and RoPE scaling, in words for people: {"norms on queries and keys",
// "logits capped at 30", ...}.
std::vector<std::string> architecture_facts(const ModelConfig &config);

} // namespace keel
