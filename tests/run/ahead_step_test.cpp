// Tests of the conditions under which a step may be queued before its token is read.
#include "run/ahead_step.hpp"

#include "ahead_rig.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;

namespace {

bool may_run(const std::vector<std::string> &sets, PipelineOptions options, uint32_t rows = 1) {
    Pipeline pipeline(config_of(sets), options);
    Session session(pipeline);
    const std::vector<int32_t> prompt(20, 7);
    session.prefill(prompt, true, rows);
    if (rows == 1) session.decode(9);
    return AheadStep(session.sequence()).may_run();
}

} // namespace

TEST_CASE("a step runs ahead only on a device that runs asynchronously") {
    Beside device;
    CHECK(may_run({}, device.options()));
    CHECK_FALSE(may_run({}, {}));
    CHECK_FALSE(may_run({"sync.ahead=off"}, device.options()));
}

TEST_CASE("a step runs ahead only if the policy does not act after the previous step") {
    Beside device;
    const std::vector<std::string> window = {"policy=sliding_window", "policy.budget.tokens=64"};
    CHECK(may_run(window, device.options()));
    std::vector<std::string> each_step = window;
    each_step.insert(each_step.end(), {"policy.trigger.on=[every_n]", "policy.trigger.every_n=1"});
    CHECK_FALSE(may_run(each_step, device.options()));
}

TEST_CASE("a step runs ahead only after a step with one row of logits") {
    Beside device;
    PipelineOptions options = device.options();
    options.max_logit_rows = 2;
    CHECK_FALSE(may_run({}, options, 2));
}

TEST_CASE("a step that is queued ahead is used only for its own token") {
    Beside device;
    Pipeline pipeline(config_of({}), device.options());
    Session session(pipeline);
    session.prefill(std::vector<int32_t>(20, 7));
    session.decode(9);
    AheadStep ahead(session.sequence());
    const int32_t id = ahead.read_token(true);
    REQUIRE(ahead.is_queued());
    session.sequence().results.put_token(id);
    CHECK_FALSE(ahead.take(id + 1));
    CHECK(session.tokens() == 21); // the text does not contain the token yet
    CHECK(ahead.take(id));
    CHECK_FALSE(ahead.is_queued());
    CHECK(session.tokens() == 22);
    CHECK(session.history().back() == id);
}
