#pragma once

#include <keel/backend.h>
#include <keel/plugin.h>

#include <string_view>

namespace keel {

// The core's own backend, named `reference`. It computes every op of the table with plain scalar
// loops over host memory, in float64. The result is rounded to the output's dtype. This backend is
// the specification in code, the last rung of the fallback ladder, and the source of expected
// values in tests. Each call computes immediately, on the calling thread. Contexts share no data.
const keel_backend *reference_backend();
const keel_plugin *reference_plugin();
// Returns true if this backend name means the reference, for which Keel searches no plugin file.
inline bool is_reference(std::string_view backend) { return backend == reference_plugin()->id; }

} // namespace keel
