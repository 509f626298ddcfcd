#pragma once

#include "config/yaml_document.hpp"
#include "eval/ab/plan/config.hpp"

#include <string>
#include <string_view>

// How an experiment is judged: the keys `statistics` and `contrasts` of its file. Both need the
// arms, the reference and the tasks in `config`. All throw Error(input) "FILE:LINE:COLUMN: ...".
namespace keel {

// Fills config.statistics. Its `primary` is always "task/metric" after that.
void read_ab_statistics(const pipeline::YamlNode &root, AbConfig &config);

void read_ab_contrasts(const pipeline::YamlNode &root, AbConfig &config);

// The name of an arm of `config`. `what`: "an arm".
std::string read_arm_name(const pipeline::YamlNode &node, const AbConfig &config,
                          std::string_view what);

} // namespace keel
