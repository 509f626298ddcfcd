#pragma once

#include "numbers/quantize.hpp"
#include "plugin/host.hpp"

namespace keel {

// Runs conversions on the host's thread team. `host` must outlive the result. An exception in a
// task is rethrown on the calling thread.
ParallelFor parallel_on(HostServices &host);

} // namespace keel
