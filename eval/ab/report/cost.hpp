#pragma once

#include "eval/ab/run/runner.hpp"

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace keel {

// The runs and the expected cost of an experiment, before it starts: as text and as JSON.
std::string ab_cost_text(const AbExperiment &experiment, const AbCost &cost);
nlohmann::ordered_json ab_cost_json(const AbExperiment &experiment, const AbCost &cost);

} // namespace keel
