#pragma once

#include "base/error.hpp"

#include <catch2/catch.hpp>

#include <string>

namespace keel::test {

// Runs `action`, which must throw a keel::Error of the given kind with a message of one line.
// Returns this message.
template <typename Action>
std::string error_text(Action &&action, ErrorKind kind = ErrorKind::input) {
    try {
        action();
    } catch (const Error &error) {
        const std::string text = error.what();
        INFO(text);
        CHECK(error.kind() == kind);
        CHECK(text.find('\n') == std::string::npos);
        CHECK(text.size() < 1000);
        return text;
    }
    FAIL("expected a keel::Error, nothing was thrown");
    return {};
}

} // namespace keel::test
