#pragma once

#include "eval/bench/bench.hpp"

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace keel {

// The text for the terminal: lines about the machine and the model, a table of the tests, and a
// line about the probes. `version`: of the program.
std::string bench_table(const BenchReport &report, std::string_view version);
// The same as JSON, with all samples. Rates are per second, sizes in bytes.
nlohmann::ordered_json bench_json(const BenchReport &report, std::string_view version);

// The parts of both for BenchReport::ops. Without ops: an empty text, an empty array.
std::string ops_tables(const BenchReport &report);
nlohmann::ordered_json ops_json(const BenchReport &report);

} // namespace keel
