#pragma once

#include "conformance/suite.hpp"

namespace keel::conformance {

// Checks the extension keel.batched_decode/1 (ops for a batch of sequences). The result for rows of
// several sequences must be equal to the results of the backend's own ops for each sequence alone.
// If the backend does not have the extension, nothing is checked and no case is counted.
Report check_batched_decode(const Library &library, Side &subject, const Options &options);

} // namespace keel::conformance
