#pragma once

#include "eval/ab/plan/experiment.hpp"

namespace keel::ab {

// One task as YAML in flow style, with every key: "{kind: passkey, name: passkey, ...}".
std::string task_yaml(const Task &task);

// The whole experiment as YAML, with the complete pipeline of every arm.
std::string yaml_of(const Experiment &experiment);

} // namespace keel::ab
