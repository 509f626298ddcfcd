#pragma once

#include "run/generate.hpp"

#include <string>

namespace keel {

// The line that ends a run: "time to first token 12 ms | prefill 512 tokens, 812.0 tokens/s | ...".
// Bytes are those of the cache and of the policy beside it, now; the peak is of both together.
// "Freed" is how much less the sequence holds now than before its evictions.
// If no token was generated, the first part is left out. Each move of a hybrid's sequence between
// backends adds a line.
std::string closing_line(const GenerateResult &result);

} // namespace keel
