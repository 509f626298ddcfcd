#pragma once

#include "eval/ab/run/runner.hpp"

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace keel {

// The planned runs of an experiment and their expected cost, as text and as JSON.
std::string ab_cost_text(const AbExperiment &experiment, const AbCost &cost);
nlohmann::ordered_json ab_cost_json(const AbExperiment &experiment, const AbCost &cost);

} // namespace keel
