#pragma once

#include "program.hpp"

namespace keel::cli {

// Adds the commands that process an experiment's results: keel ab compare, merge and report.
void add_ab_commands(Command &ab, Program &program);

} // namespace keel::cli
