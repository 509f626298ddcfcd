#pragma once

#include "conformance/suite.hpp"

namespace keel::conformance {

// keel.batched_decode/1: rows of several sequences give what the backend's own ops give for each
// sequence alone. Nothing is checked, and no case counted, where the backend has no such extension.
Report check_batched_decode(const Library &library, Side &subject, const Options &options);

} // namespace keel::conformance
