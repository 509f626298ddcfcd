#pragma once

#include <keel/backend.h>
#include <keel/plugin.h>

#include <string_view>

namespace keel {

// The core's own backend, named `reference`: every op of the table as plain scalar loops over host
// memory, in float64, rounded to the output's dtype at the end. It is the specification in code,
// the last rung of the fallback ladder and the oracle of the tests. Work is done at once, in the
// calling thread; contexts share nothing.
const keel_backend *reference_backend();
const keel_plugin *reference_plugin();
// Whether a pipeline that names this backend means the reference, which no file has to be looked
// for.
inline bool is_reference(std::string_view backend) { return backend == reference_plugin()->id; }

} // namespace keel
