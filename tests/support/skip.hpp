// Reports a test case as skipped. Version 2 of Catch2 has no such state, but CTest has.
#pragma once

#include <string>

namespace keel::test {

// Ends the running case. If none of its checks failed, prints "SKIPPED: reason" after the case.
// keel_test() configures CTest so that it counts such a case as skipped and not as passed. A case
// that tries several devices or instruction sets calls this function only if none of them is
// available.
[[noreturn]] void skip(const std::string &reason);

} // namespace keel::test
