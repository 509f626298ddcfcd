#pragma once

#include "eval/ab/run/runner.hpp"

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace keel::ab {

// Describe the planned runs of an experiment and the expected cost of the runs, as text and as
// JSON.
std::string cost_text(const Experiment &experiment, const Cost &cost);
nlohmann::ordered_json cost_json(const Experiment &experiment, const Cost &cost);

} // namespace keel::ab
