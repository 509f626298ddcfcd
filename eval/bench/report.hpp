#pragma once

#include "eval/bench/bench.hpp"

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace keel {

// The report as text for the terminal: lines about the machine and the model, tables of the tests,
// and lines about the probes. `version` is the version of the program.
std::string bench_table(const BenchReport &report, std::string_view version);
// The report as JSON, with all samples. Rates are per second, sizes are in bytes.
nlohmann::ordered_json bench_json(const BenchReport &report, std::string_view version);

// The parts of the text and of the JSON for BenchReport::ops. If there are no ops, the text or the
// array is empty.
std::string ops_tables(const BenchReport &report);
nlohmann::ordered_json ops_json(const BenchReport &report);

} // namespace keel
