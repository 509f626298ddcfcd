#pragma once

#include "program.hpp"

namespace keel::cli {

// keel bench sync: the sync strategies side by side.
void add_bench_sync(CLI::App &bench, Program &program);

} // namespace keel::cli
