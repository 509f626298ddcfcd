#pragma once

#include "numbers/quantize.hpp"
#include "plugin/host.hpp"

namespace keel {

// Conversions spread over the host's thread team, which must outlive the result. An exception in a
// task is carried to the caller.
ParallelFor parallel_on(HostServices &host);

} // namespace keel
