#pragma once

#include "eval/ab/records/record.hpp"

#include <string>
#include <string_view>

// Converts between records and the lines of a results file.
namespace keel::ab {

// Reads the first line of `file`.
Header parse_header(std::string_view line, const std::string &file);
Record parse_record(std::string_view line, const std::string &file, uint64_t number);

} // namespace keel::ab
