#pragma once

#include "program.hpp"

namespace keel::cli {

// `keel bench matrix` and `keel bench report`.
void add_bench_matrix(CLI::App &bench, Program &program);
void add_bench_report(CLI::App &bench, Program &program);

} // namespace keel::cli
