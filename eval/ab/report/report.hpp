#pragma once

#include "eval/ab/verdicts/summary.hpp"

#include <cstddef>
#include <filesystem>
#include <string>

namespace keel {

// One HTML page that needs nothing else: tables, plots drawn by its own script from data inside it.
// Below `largest` bytes; what does not fit is left out by name (maps first).
std::string ab_report_html(const AbTable &table, const AbSummary &summary,
                           size_t largest = 5'000'000);

// Reads FOLDER/results.jsonl, writes FOLDER/summary.json and FOLDER/report.html, each whole or not
// at all, and returns the text for the terminal: verdicts, warnings, where the report lies. What
// `keel ab` ends with and `keel ab report` repeats. Throws Error(input) for records that cannot be
// read, Error(runtime) where the system refuses to write.
std::string write_ab_report(const std::filesystem::path &folder);

} // namespace keel
