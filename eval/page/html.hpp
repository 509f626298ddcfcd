#pragma once

#include <string>
#include <string_view>

namespace keel {

// Text for the inside of an element or of a quoted attribute: & < > " ' become entities, nothing else changes.
std::string html_escaped(std::string_view text);

} // namespace keel
