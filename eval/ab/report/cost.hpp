#pragma once

#include "eval/ab/run/runner.hpp"

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace keel {

// What an experiment will run and cost, before it runs: for people, and as JSON.
std::string ab_cost_text(const AbExperiment &experiment, const AbCost &cost);
nlohmann::ordered_json ab_cost_json(const AbExperiment &experiment, const AbCost &cost);

} // namespace keel
