#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace keel_file {

// The bounds of a budget file.
constexpr size_t max_bytes = size_t{16} << 20;
constexpr size_t max_depth = 32;      // nested lists and objects
constexpr size_t max_values = 200000; // of the whole file

// Reads a JSON file within these bounds. Throws keel::sdk::Failure for a file that cannot be read,
// is above a bound, is not valid JSON, or is an object that has a key twice: "PATH: ...",
// "PATH:LINE: ..." or "PATH:LINE:COLUMN: ...".
nlohmann::json read_bounded_json(const std::string &path);

// Throws keel::sdk::Failure "PLACE: WHAT". Only the end of a long path is shown.
[[noreturn]] void refuse(const std::string &path, const std::string &what,
                         const std::string &place_in_file = {});

} // namespace keel_file
