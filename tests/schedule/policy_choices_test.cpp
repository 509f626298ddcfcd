// The policies that requests choose.

#include "scheduler_rig.hpp"
#include "support/error_text.hpp"

#include "schedule/policy_choices.hpp"
#include "schedule/policy_list.hpp"

#include <algorithm>

using namespace keel;
using namespace keel::test;

namespace {

class ChoiceRig {
  public:
    explicit ChoiceRig(const std::vector<std::string> &more = {})
        : pipeline(rig_config(more), scheduler_pipeline_options({.seats = 2})), choices(pipeline) {}

    PolicyChoices::Lease find(const PolicyChoice &choice) {
        return choices.find(choice, [this](const std::function<void()> &task) {
            ++made;
            task();
        });
    }
    std::string error(const PolicyChoice &choice, ErrorKind kind = ErrorKind::input) {
        return error_text([&] { find(choice); }, kind);
    }

    Pipeline pipeline;
    PolicyChoices choices;
    int made = 0;
};

} // namespace

TEST_CASE("equal choices share a setup, and the choice of the file is the file's setup") {
    ChoiceRig rig;
    CHECK(rig.find({})->plan == &rig.pipeline.policy_setup());
    CHECK(rig.find({{"name", "none"}})->plan == &rig.pipeline.policy_setup());
    const auto a = rig.find({{"name", "snapkv"}, {"budget.tokens", "64"}, {"params.window", "16"}});
    const auto b = rig.find({{"params.window", "16"}, {"name", "snapkv"}, {"budget.tokens", "64"}});
    const auto c = rig.find({{"name", "snapkv"}, {"budget.tokens", "65"}, {"params.window", "16"}});
    CHECK(a->plan == b->plan);
    CHECK(a->plan != c->plan);
    CHECK(a->name == "snapkv");
    CHECK(a->plan->budget().fixed() == 64);
    CHECK(rig.made == 2);
}

TEST_CASE("a choice has the values of the file if its policy is the policy of the file") {
    ChoiceRig rig(
        {"policy.plugin=sliding_window", "policy.budget.tokens=100", "policy.protect.prefix=7"});
    CHECK(rig.find({{"budget.tokens", "100"}})->plan == &rig.pipeline.policy_setup());
    const auto same = rig.find({{"budget.tokens", "80"}});
    CHECK(same->name == "sliding_window");
    CHECK(same->plan->config().protect_prefix == 7);
    const auto ratio = rig.find({{"budget.ratio", "0.5"}}); // replaces the budget of the file
    CHECK(ratio->plan->config().budget_unit == BudgetUnit::ratio);
    const auto other = rig.find({{"name", "h2o"}, {"budget.tokens", "80"}});
    CHECK(other->plan->config().protect_prefix == 4);
}

TEST_CASE("a wrong choice is refused with its key") {
    ChoiceRig rig;
    CHECK_THAT(rig.error({{"name", "nopolicy"}}, ErrorKind::plugin), Catch::Contains("nopolicy"));
    CHECK_THAT(rig.error({{"name", "cpu"}}, ErrorKind::plugin), Catch::Contains("policy"));
    CHECK_THAT(rig.error({{"name", "snapkv"}}), Catch::Contains("budget"));
    CHECK_THAT(rig.error({{"name", "snapkv"}, {"budget.tokens", "many"}}),
               Catch::Contains("policy.budget.tokens"));
    CHECK_THAT(rig.error({{"name", "snapkv"}, {"budget.tokens", "64"}, {"params.windw", "3"}}),
               Catch::Contains("windw"));
    CHECK_THAT(rig.error({{"name", "snapkv"}, {"budget.tokens", "64"}, {"params.window", "-3"}}),
               Catch::Contains("window"));
    CHECK_THAT(rig.error({{"name", "snapkv"}, {"budgt.tokens", "64"}}), Catch::Contains("budgt"));
    for (const char *key : {"", ".", "a..b", "x=y", "x y", "name.", "a\nb"})
        CHECK_THAT(rig.error({{key, "1"}}), Catch::Contains("policy"));
    CHECK_FALSE(rig.error({{"name", "{a: [1"}}).empty());
    CHECK_FALSE(rig.error({{"name", "snapkv"}, {"budget.tokens", "[[[[[[["}}).empty());
    CHECK_THAT(rig.error(PolicyChoice(100, {"budget.tokens", "4"})), Catch::Contains("keys"));
    CHECK_THAT(rig.error({{"name", std::string(20000, 'x')}}), Catch::Contains("bytes"));
}

TEST_CASE("a choice cannot name files") {
    ChoiceRig rig;
    CHECK_THAT(rig.error({{"name", "/tmp/evil.so"}}), Catch::Contains("installed"));
    CHECK_THAT(rig.error({{"name", "../evil.so"}}), Catch::Contains("installed"));
    CHECK_THAT(rig.error({{"name", "snapkv"}, {"log", "/tmp/log"}}), Catch::Contains("policy.log"));
    CHECK_THAT(rig.error({{"name", "snapkv"}, {"log_positions", "true"}}), Catch::Contains("log"));
    CHECK_THAT(
        rig.error({{"name", "snapkv"}, {"budget.tokens", "64"}, {"allocator.name", "./x.so"}}),
        Catch::Contains("installed"));
    const std::vector<ListedPolicy> policies = list_policies();
    CHECK_THAT(rig.error({{"name", "snapkv"},
                          {"budget.tokens", "64"},
                          {"allocator.name", "file"},
                          {"allocator.params.path", "/etc/passwd"}}),
               Catch::Contains("files"));
}

TEST_CASE("setups that no request uses are freed, and setups in use stay") {
    ChoiceRig rig;
    const auto choice = [](size_t i) {
        return PolicyChoice{{"name", "sliding_window"}, {"budget.tokens", std::to_string(40 + i)}};
    };
    const PolicyChoices::Lease used = rig.find(choice(0));
    for (size_t i = 1; i < 2 * PolicyChoices::most_unused; ++i) rig.find(choice(i));
    const int before = rig.made;
    CHECK(rig.find(choice(0)) == used);
    CHECK(rig.find(choice(2 * PolicyChoices::most_unused - 1)) != nullptr);
    CHECK(rig.made == before);
    rig.find(choice(1)); // was freed
    CHECK(rig.made == before + 1);
    Session session(rig.pipeline, *used->plan);
    session.prefill(book(*rig.pipeline.tokenizer(), 0, 100));
    CHECK(session.cache().cache().max_length() <= 40);
}

TEST_CASE("the list of policies has their parameters, and the other keys are listed") {
    const std::vector<ListedPolicy> policies = list_policies();
    const auto snapkv = std::ranges::find(policies, "snapkv", &ListedPolicy::name);
    REQUIRE(snapkv != policies.end());
    CHECK_FALSE(snapkv->doc.empty());
    const auto window = std::ranges::find(snapkv->params, "params.window", &PolicyKeyFacts::name);
    REQUIRE(window != snapkv->params.end());
    CHECK_THAT(window->expected, Catch::Contains("integer"));
    CHECK(std::ranges::find(policies, "cpu", &ListedPolicy::name) == policies.end());
    const std::vector<PolicyKeyFacts> keys = list_policy_keys();
    CHECK(std::ranges::find(keys, "budget.tokens", &PolicyKeyFacts::name) != keys.end());
    CHECK(std::ranges::find(keys, "name", &PolicyKeyFacts::name) != keys.end());
    CHECK(std::ranges::find(keys, "log", &PolicyKeyFacts::name) == keys.end());
}
