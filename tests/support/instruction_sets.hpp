// The instruction sets of the CPU backend that tests use.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>

namespace keel::test {

// All values of params.isa except auto. The sets of each architecture are in rising order of speed.
constexpr const char *isa_names[] = {"scalar", "avx2", "avx512",  "vnni", "avx512bf16",
                                     "amx",    "neon", "dotprod", "fp16", "i8mm"};

// Returns true if tests should use this instruction set. The environment variable KEEL_TEST_ISAS
// can list sets, separated by blanks. This saves time in slow emulation: sets that were tested on
// one emulated processor are left out on another.
inline bool is_isa_wanted(const std::string &isa) {
    const char *only = std::getenv("KEEL_TEST_ISAS");
    if (only == nullptr || *only == 0) return true;
    std::istringstream words(only);
    for (std::string word; words >> word;)
        if (word == isa) return true;
    return false;
}

} // namespace keel::test
