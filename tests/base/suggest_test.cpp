#include "base/error.hpp"
#include "base/suggest.hpp"

#include <catch2/catch.hpp>
#include <vector>

TEST_CASE("a misspelled word finds the right word") {
    const std::vector<std::string> keys{"window", "kernel", "pooling"};
    CHECK(keel::nearest_word("widnow", keys) == "window");
    CHECK(keel::nearest_word("kernal", keys) == "kernel");
    CHECK(keel::nearest_word("threads", keys).empty());
    CHECK(keel::nearest_word("", keys).empty());
    CHECK(keel::did_you_mean("windows", keys) == "; did you mean 'window'?");
    CHECK(keel::did_you_mean("zzz", keys).empty());
}

TEST_CASE("the kind of an error decides the exit code") {
    CHECK(keel::Error(keel::ErrorKind::input, "x").exit_code() == 2);
    CHECK(keel::Error(keel::ErrorKind::runtime, "x").exit_code() == 1);
}
