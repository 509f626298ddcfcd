#pragma once

#include "eval/bench/bench.hpp"

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace keel {

// What a person reads: lines on the machine and the model, a table of the tests, a line on the
// probes. `version` is the program's.
std::string bench_table(const BenchReport &report, std::string_view version);
// The same and all samples, for programs. Rates are per second, sizes in bytes.
nlohmann::ordered_json bench_json(const BenchReport &report, std::string_view version);

// Parts of the two: BenchReport::ops. No ops: an empty text, an empty array.
std::string ops_tables(const BenchReport &report);
nlohmann::ordered_json ops_json(const BenchReport &report);

} // namespace keel
