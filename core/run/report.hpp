#pragma once

#include "run/generate.hpp"

#include <string>

namespace keel {

// The line that ends a run: "time to first token 12 ms | prefill 512 tokens, 812.0 tokens/s |
// decode
// ...". Without its first part if no token was generated. One more line for each move of a hybrid's
// sequence between backends.
std::string closing_line(const GenerateResult &result);

} // namespace keel
