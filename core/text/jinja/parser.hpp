#pragma once

#include "text/jinja/ast.hpp"

#include <string_view>

namespace keel::jinja {

// Parses a template. Throws LineFailure with what was found and what was expected.
Body parse_template(std::string_view source, const Limits &limits);

} // namespace keel::jinja
