#pragma once

#include "program.hpp"

namespace keel::cli {

// keel ab compare | merge | report: what is done with an experiment's results.
void add_ab_commands(Command &ab, Program &program);

} // namespace keel::cli
