#pragma once

#include "program.hpp"

namespace keel::cli {

// keel ab compare | merge | report: commands that process an experiment's results.
void add_ab_commands(Command &ab, Program &program);

} // namespace keel::cli
