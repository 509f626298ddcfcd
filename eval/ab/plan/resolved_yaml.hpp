#pragma once

#include "eval/ab/plan/experiment.hpp"

namespace keel {

// One task in flow style, with every key: "{kind: passkey, name: passkey, ...}".
std::string ab_task_yaml(const AbTask &task);

// The whole experiment, with the complete pipeline of every arm.
std::string ab_resolved_yaml(const AbExperiment &experiment);

} // namespace keel
