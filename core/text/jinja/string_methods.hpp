#pragma once

#include "text/jinja/evaluator.hpp"

#include <optional>

namespace keel::jinja {

// Returns the first place at or after `from`, std::string::npos if there is none. Takes linear
// time.
std::size_t find_text(std::string_view in, std::string_view what, std::size_t from, Meter &meter);

enum class Ends { both, left, right };
// Removes characters from the ends: white space, or the characters of `chars`.
Text strip(const Text &text, Ends ends, const std::optional<Text> &chars, Meter &meter);
Text to_upper(const Text &text, Meter &meter);
Text to_lower(const Text &text, Meter &meter);
Text to_capitalized(const Text &text, Meter &meter); // Python's str.capitalize()
Text to_title(const Text &text, Meter &meter);       // Python's str.title()
Text replace(const Text &text, const Text &old, const Text &by, std::int64_t count, Meter &meter);
std::vector<Text> split_lines(const Text &text, bool keep_ends, Meter &meter);
Value percent_format(Evaluator &evaluator, const Text &format, const Value &arguments);

bool has_string_method(std::string_view name);
Value call_string_method(Evaluator &evaluator, const Text &self, const std::string &name,
                         Arguments arguments);

} // namespace keel::jinja
