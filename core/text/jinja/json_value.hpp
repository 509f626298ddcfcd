#pragma once

#include "text/jinja/value.hpp"

#include <string>
#include <string_view>

namespace keel::jinja {

// Reads a JSON text. Objects keep the order of their keys; strings are marked as data. `name`: the
// file, for messages. Throws Error(input)
// for invalid JSON, for more than 64 nested levels, and for integers that do not fit in 64 bits.
Value read_json(std::string_view text, const std::string &name);

} // namespace keel::jinja
