#pragma once

#include "program.hpp"

#include "eval/ab/records/margin.hpp"

#include <string>

namespace keel::cli {

// Reads "hit=5 points", a value of --margin. Throws Error(usage) if the text does not have this
// form.
void add_margin(const std::string &text, ab::Margins &margins);

void add_ab_power(Command &ab, Program &program);

// Adds the commands that process an experiment's results: keel ab compare, merge and report.
void add_ab_commands(Command &ab, Program &program);

} // namespace keel::cli
