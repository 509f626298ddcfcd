#pragma once

#include "eval/bench/attention/attention_bench.hpp"

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace keel {

// The report as text for the terminal. Rates are medians of the rounds.
std::string attention_table(const AttentionBenchReport &report);
// The report as JSON, with all samples. Rates are operations per second, sizes are in bytes, times
// are in seconds.
nlohmann::ordered_json attention_json(const AttentionBenchReport &report);

} // namespace keel
