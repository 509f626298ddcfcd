#pragma once

#include "config/yaml_document.hpp"
#include "eval/ab/plan/config.hpp"

#include <string>
#include <string_view>

// Reads the keys `statistics` and `contrasts` of an experiment's file. The arms, the reference and
// the tasks must already be in `config`. All functions throw Error(input) "FILE:LINE:COLUMN: ...".
namespace keel::ab {

// Sets config.statistics. After the call, config.statistics.primary has the form "task/metric".
void read_statistics(const pipeline::YamlNode &root, Config &config);

void read_contrasts(const pipeline::YamlNode &root, Config &config);

// Reads the name of an arm of `config`. `what` describes the expected value in messages, for
// example "an arm".
std::string read_arm_name(const pipeline::YamlNode &node, const Config &config,
                          std::string_view what);

} // namespace keel::ab
