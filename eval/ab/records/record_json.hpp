#pragma once

#include "eval/ab/records/record.hpp"

#include <string>
#include <string_view>

// Converts between records and the lines of a results file.
namespace keel {

// Reads the first line of `file`.
AbHeader parse_ab_header(std::string_view line, const std::string &file);
AbRecord parse_ab_record(std::string_view line, const std::string &file, uint64_t number);

} // namespace keel
