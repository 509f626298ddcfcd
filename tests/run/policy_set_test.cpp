// Tests of the policies that one pipeline runs: the policy of the config, and policies that were
// added.
#include "run/policy_set.hpp"

#include "base/log_sinks.hpp"
#include "mini_run.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <spdlog/sinks/ostream_sink.h>
#include <sstream>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

// Returns the policy section with these settings.
pipeline::PolicySection section(std::initializer_list<std::string> sets) {
    return mini_config(sets).policy;
}

PipelineOptions several() {
    PipelineOptions options = mini_options();
    options.several_policies = true;
    return options;
}

// Returns the warnings that appear when a pipeline is made from this config.
std::string warnings(std::initializer_list<std::string> sets) {
    std::ostringstream out;
    const auto sink = std::make_shared<spdlog::sinks::ostream_sink_st>(out);
    sink->set_pattern("%v");
    spdlog_logger().sinks().push_back(sink);
    PipelineOptions options = mini_options();
    options.check_only = true;
    const Pipeline pipeline(mini_config(sets), options);
    spdlog_logger().sinks().pop_back();
    return out.str();
}

} // namespace

TEST_CASE("added policies have their own plans and ops") {
    Pipeline pipeline(mini_config(), several());
    PolicySet &set = pipeline.policies();
    PolicySetup &own = pipeline.policy_setup();
    PolicySetup &window = set.add(section({"policy=sliding_window", "policy.budget.tokens=64"}));
    PolicySetup &h2o = set.add(section({"policy=h2o", "policy.budget.tokens=64"}));
    CHECK(set.is_own(own));
    CHECK_FALSE(set.is_own(window));
    CHECK(own.keeps_all());
    CHECK(window.budget().fixed() == 64);
    CHECK(set.taps(window).list().empty());    // this policy reads only positions
    CHECK_FALSE(set.taps(h2o).list().empty()); // this policy reads sums of attention
    CHECK(&set.taps(own) == &pipeline.graph().taps());
    // After the context changed, the config's policy has a new plan. The plans of added policies
    // stay.
    set.make_own_plans();
    CHECK(set.is_own(pipeline.policy_setup()));
    CHECK_FALSE(set.is_own(h2o));
    CHECK_FALSE(set.taps(h2o).list().empty());
}

TEST_CASE("a plan of another pipeline is refused") {
    Pipeline pipeline(mini_config(), several()), other(mini_config(), several());
    CHECK_THAT(
        error_text([&] { pipeline.policies().taps(other.policy_setup()); }, ErrorKind::internal),
        Contains("the policy setup belongs to another pipeline"));
}

TEST_CASE("an added policy is checked like the config's") {
    Pipeline pipeline(mini_config(), several());
    PolicySet &set = pipeline.policies();
    CHECK_THAT(error_text([&] {
                   set.add(section({"policy=sliding_window", "policy.budget.tokens=5",
                                    "policy.protect.prefix=4", "policy.protect.recent=4"}));
               }),
               Contains("policy.budget.tokens: a budget of 5 slots leaves no room"));
    CHECK_THAT(error_text([&] { set.add(section({"policy=no_such_policy"})); }, ErrorKind::plugin),
               Contains("no_such_policy"));
}

TEST_CASE("one prefill serves policies whose needs are compatible, and refuses others by name") {
    Pipeline pipeline(mini_config(), several());
    PolicySet &set = pipeline.policies();
    const auto add = [&](std::initializer_list<std::string> sets) {
        return &set.add(section(sets));
    };
    PolicySetup *snapkv = add({"policy=snapkv", "policy.budget.tokens=64"});
    PolicySetup *h2o = add({"policy=h2o", "policy.budget.tokens=64"});
    PolicySetup *expected = add({"policy=expected_attention", "policy.budget.tokens=64"});
    const std::vector<PolicySetup *> together = {snapkv, h2o, expected};
    PolicySetup &shared = set.add_shared_prefill(together);
    CHECK(shared.keeps_all());
    CHECK(shared.config().policy.name == "(full cache)");
    CHECK(shared.collected().window == snapkv->collected().window);
    CHECK(shared.collected().running == h2o->collected().running);
    CHECK(shared.collected().stats == expected->collected().stats);

    PolicySetup *skips =
        add({"policy=expected_attention", "policy.budget.tokens=64", "policy.params.sinks=9"});
    REQUIRE(skips->collected().stats != expected->collected().stats);
    const std::vector<PolicySetup *> apart = {expected, skips};
    CHECK_THAT(error_text([&] { set.add_shared_prefill(apart); }),
               Contains("policy expected_attention needs query_stats in another form"));
}

TEST_CASE("a hybrid has one policy") {
    Pipeline pipeline(mini_hybrid({"hybrid.prefill=a", "hybrid.decode=b"}), mini_options());
    CHECK_THAT(error_text([&] { pipeline.policies().add(section({})); }),
               Contains("several policies over one model run only on one backend"));
    CHECK_NOTHROW(refuse_hybrid(mini_config(), "what runs here"));
}

TEST_CASE("only a policy that evicts may have a context beyond the trained one") {
    PipelineOptions options = mini_options();
    options.check_only = true;
    CHECK_THAT(error_text([&] { Pipeline(mini_config({"model.context=8193"}), options); }),
               Contains("model.context is 8193, but the model was made for 8192 tokens"));
    const Pipeline evicting(
        mini_config({"model.context=8193", "policy=sliding_window", "policy.budget.tokens=64"}),
        options);
    CHECK(evicting.context() == 8193);
}

TEST_CASE("if two budgets differ, a warning says how many slots an eviction leaves") {
    // The policy keeps 60 slots in addition to the protected slots.
    const std::string told = warnings({"policy=sliding_window", "policy.params.window=60",
                                       "policy.protect.prefix=4", "policy.budget.tokens=80"});
    CHECK_THAT(told, Contains("policy.budget.tokens allows 80 slots per head, but policy "
                              "sliding_window itself sets a budget of 60 slots plus a protected "
                              "prefix of 4; the smaller budget applies, so an eviction leaves 64"));
    CHECK(warnings({"policy=sliding_window", "policy.params.window=60", "policy.protect.prefix=4",
                    "policy.budget.tokens=64"}) == "");
    CHECK(warnings({"policy=sliding_window", "policy.params.window=60", "policy.protect.prefix=4",
                    "policy.budget.ratio=0.5"}) == "");
}
