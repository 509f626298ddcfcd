#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace keel_file {

// Limits of a budget file.
constexpr size_t max_bytes = size_t{16} << 20;
constexpr size_t max_depth = 32;      // nesting of lists and objects
constexpr size_t max_values = 200000; // number of values in the whole file

// Reads a JSON file within these limits. Throws keel::sdk::Failure if the file cannot be read,
// exceeds a limit, is not valid JSON, or has an object with a repeated key. The message begins with
// "PATH: ", "PATH:LINE: " or "PATH:LINE:COLUMN: ".
nlohmann::json read_bounded_json(const std::string &path);

// Throws keel::sdk::Failure. The message consists of the path, the place in the file, ": " and
// `what`. If the path is long, the message contains only its end.
[[noreturn]] void refuse(const std::string &path, const std::string &what,
                         const std::string &place_in_file = {});

} // namespace keel_file
