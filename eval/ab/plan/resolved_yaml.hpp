#pragma once

#include "eval/ab/plan/experiment.hpp"

namespace keel::ab {

// Quotes a text for YAML's flow style. In flow style, more characters end an unquoted text than in
// block style.
std::string quoted_yaml(const std::string &text);

// One task as YAML in flow style, with every key: "{kind: passkey, name: passkey, ...}".
std::string task_yaml(const Task &task);

// The whole experiment as YAML, with the complete pipeline of every arm.
std::string yaml_of(const Experiment &experiment);

} // namespace keel::ab
