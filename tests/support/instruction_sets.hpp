// The instruction sets of the CPU backend that tests try.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>

namespace keel::test {

// All that params.isa may name beside auto, each architecture's in rising order of speed.
constexpr const char *isa_names[] = {"scalar", "avx2", "avx512",  "vnni", "avx512bf16",
                                     "amx",    "neon", "dotprod", "fp16", "i8mm"};

// Whether tests that go through the machine's sets take this one: the environment variable
// KEEL_TEST_ISAS may name some, blanks between them. Emulation is slow: what one processor has run
// another one leaves out.
inline bool is_isa_wanted(const std::string &isa) {
    const char *only = std::getenv("KEEL_TEST_ISAS");
    if (only == nullptr || *only == 0) return true;
    std::istringstream words(only);
    for (std::string word; words >> word;)
        if (word == isa) return true;
    return false;
}

} // namespace keel::test
