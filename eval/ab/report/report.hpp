#pragma once

#include "eval/ab/verdicts/summary.hpp"

#include <cstddef>
#include <filesystem>
#include <string>

namespace keel::ab {

// One HTML page without external files: tables, and plots that the script of the page draws from
// data in the page. The page has fewer than `largest` bytes. Parts that do not fit are left out,
// keep maps first. The page lists the parts that are left out.
std::string report_html(const Table &table, const Names &names, const Summary &summary,
                        size_t largest = 5'000'000);

// Reads FOLDER/results.jsonl. Writes FOLDER/summary.json and FOLDER/report.html, each either
// complete or not at all. Returns the text for the terminal: verdicts, warnings, and the path of
// the report. `keel ab` calls this function at the end of an experiment. `keel ab report` calls
// this function again. Throws Error(input) for records that cannot be read, and Error(runtime) if
// the system refuses to write.
std::string write_report(const std::filesystem::path &folder);

} // namespace keel::ab
