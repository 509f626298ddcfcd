#pragma once

#include "program.hpp"

namespace keel::cli {

// Add the commands `keel bench matrix` and `keel bench report`.
void add_bench_matrix(Command &bench, Program &program);
void add_bench_report(Command &bench, Program &program);

} // namespace keel::cli
