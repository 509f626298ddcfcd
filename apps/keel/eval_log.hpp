#pragma once

#include "program.hpp"

namespace keel::cli {

// Adds the command `keel eval log`.
void add_eval_log(Command &eval, Program &program);

} // namespace keel::cli
