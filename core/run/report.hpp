#pragma once

#include "run/generate.hpp"

#include <string>

namespace keel {

// Returns the line that ends a run: "time to first token 12 ms | prefill 512 tokens, 812.0 tokens/s
// | ...". The line shows the current memory of the cache and of the policy, and the peak of their
// sum. "Freed" is CacheManager::freed_bytes. If no token was generated, the line does not begin
// with the time to the first token. In a hybrid, each move of the sequence between backends adds a
// line.
std::string closing_line(const GenerateResult &result);

} // namespace keel
