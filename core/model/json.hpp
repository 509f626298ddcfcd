#pragma once

// Internal to core/model: no public header includes this one, so that users of the library need no JSON headers.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace keel::model {

// Bounds for JSON from outside. A document of `values` values takes roughly 100 bytes for each.
struct JsonLimits {
    size_t bytes = size_t{4} << 20;
    size_t depth = 32;
    size_t values = 200'000; // keys do not count
};

// Parses an object. Throws Error(input) "NAME: line L, column C: ..." for bad syntax, text that is not UTF-8, a key that
// stands twice in one object, a top level that is no object, and whatever passes the limits.
nlohmann::json parse_json_object(std::string_view text, std::string_view name, const JsonLimits &limits);

// How a value is shown in "expected ..., found ...": short, printable, one line.
std::string describe(const nlohmann::json &value);

} // namespace keel::model
