#pragma once

#include "conformance/suite.hpp"

namespace keel::conformance {

// Checks keel.attention_dense/1: forward and backward against the reference, refusals, and equal
// bits for any number of workers. If the backend does not have the extension, the function does
// nothing.
Report check_attention_dense(const Library &library, const Params &params, const Options &options);

} // namespace keel::conformance
