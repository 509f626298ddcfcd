#pragma once

#include "program.hpp"

namespace keel::cli {

// Adds the command `keel bench attention`.
void add_bench_attention(Command &bench, Program &program);

} // namespace keel::cli
