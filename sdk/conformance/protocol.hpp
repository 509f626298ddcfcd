#pragma once

#include "conformance/suite.hpp"

namespace keel::conformance {

// Checks the parts of the interface that are not about numbers: statuses, tickets, unknown feature
// bits, older and newer peers, contexts in threads, leaks.
Report check_protocol(const Library &library, const Params &params, const Options &options);

} // namespace keel::conformance
