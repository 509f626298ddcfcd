// Reports a test case as skipped. Catch2 2 has no such state, but CTest has.
#pragma once

#include <string>

namespace keel::test {

// Ends the running case. If none of its checks failed, prints "SKIPPED: reason" after it, which
// makes CTest count the case as skipped and not as passed (keel_test() sets that up). A case that
// tries several devices or instruction sets calls this only if none of them is here.
[[noreturn]] void skip(const std::string &reason);

} // namespace keel::test
