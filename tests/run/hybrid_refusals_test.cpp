// Tests of hybrid configs that are refused. The error names the key.
#include "hybrid_rig.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

TEST_CASE("policies that decide for all layers at once cannot have layers on two backends") {
    const std::string layers = "hybrid.layers=[{range: 0-2, on: a}, {range: 3-5, on: b}]";
    CHECK_THAT(error_text([&] {
                   Pipeline p(two({layers, "policy=snapkv", "policy.budget.tokens=64",
                                   "policy.allocator=pyramid"}));
               }),
               Contains("allocator pyramid divides the budget among all layers"));
    CHECK_THAT(error_text([&] {
                   Pipeline p(two({layers, "policy=kvzip", "policy.budget.tokens=64"}));
               }),
               Contains("repeat the context"));
}

TEST_CASE("impossible combinations are refused by name") {
    const auto refused = [](const std::vector<std::string> &more) {
        return error_text([&] { Pipeline p(two(more)); });
    };
    CHECK_THAT(refused({"hybrid.layers=[{range: 0-3, on: a}, {range: 4-9, on: b}]"}),
               Contains("expected the ranges in 'hybrid.layers' to end at layer 5") &&
                   Contains("found 9"));
    Pipeline pipeline(two({"hybrid.prefill=a", "hybrid.decode=b"}));
    CHECK_THAT(error_text([&] { pipeline.policies().add(pipeline.config().policy); }),
               Contains("several policies over one model run only on one backend"));
}
