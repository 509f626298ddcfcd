#include "support/skip.hpp"

#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <catch2/catch.hpp>

#include <iostream>

namespace {

std::string skip_reason; // reason of the case that is running

// Prints the reason when the case has ended. If a check of the case failed, prints nothing, because
// CTest would count the failed case as skipped.
struct SkipPrinter : Catch::TestEventListenerBase {
    using Catch::TestEventListenerBase::TestEventListenerBase;

    void testCaseEnded(const Catch::TestCaseStats &stats) override {
        if (!skip_reason.empty() && stats.totals.assertions.failed == 0)
            std::cout << "SKIPPED: " << skip_reason << std::endl;
        skip_reason.clear();
    }
};

} // namespace

CATCH_REGISTER_LISTENER(SkipPrinter)

namespace keel::test {

void skip(const std::string &reason) {
    skip_reason = reason;
    throw Catch::TestFailureException(); // ends the case without another message
}

} // namespace keel::test
