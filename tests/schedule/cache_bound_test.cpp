// The bound of a request's memory, compared with the memory that sessions take.

#include "scheduler_rig.hpp"
#include "support/error_text.hpp"

#include "schedule/cache_bound.hpp"

#include "run/windowed_rig.hpp"

using namespace keel;
using namespace keel::test;

namespace {

pipeline::PolicySection policy_section(const std::vector<std::string> &sets) {
    std::vector<std::string> all;
    for (const std::string &set : sets) all.push_back("policy." + set);
    return rig_config(all).policy;
}

const std::vector<std::vector<std::string>> bounded_policies = {
    {"plugin=none"},
    {"plugin=sliding_window", "budget.tokens=64"},
    {"plugin=sliding_window", "budget.tokens=64", "trigger.on=[budget]", "budget.slack=70"},
    {"plugin=sliding_window", "budget.mib=1"},
    {"plugin=sliding_window", "budget.ratio=0.3"},
    {"plugin=sliding_window", "params.window=80"},
    {"plugin=sliding_window", "budget.tokens=64", "trigger.on=[every_n]", "trigger.every_n=50"},
    {"plugin=snapkv", "budget.tokens=96"},
    {"plugin=snapkv", "budget.tokens=96", "allocator.plugin=adaptive"},
    {"plugin=h2o", "budget.tokens=80"},
    {"plugin=tova", "budget.tokens=80"},
    {"plugin=knorm", "budget.tokens=80", "allocator.plugin=pyramid"},
    {"plugin=kvzip", "budget.tokens=80"},
    {"plugin=expected_attention", "budget.tokens=80"}};

} // namespace

TEST_CASE("no sequence takes more memory than its bound") {
    for (const char *dtype : {"f16", "q8_0"}) {
        PipelineOptions options = scheduler_pipeline_options({.seats = 2, .prefill_chunk = 128});
        Pipeline pipeline(rig_config({std::string("kv.dtype=") + dtype}), options);
        for (const auto &sets : bounded_policies) {
            const auto &plan = pipeline.policies().add(policy_section(sets));
            // kvzip needs room for a repetition of the prompt.
            const size_t longest = sets.front() == "plugin=kvzip" ? 400 : 700;
            for (const auto &[length, more] :
                 {std::pair<size_t, int64_t>{40, 100}, {longest, 150}}) {
                INFO(dtype << ' ' << sets.front() << ' ' << sets.back() << ' ' << length);
                const CacheBound bound =
                    cache_bound(pipeline, plan, static_cast<int64_t>(length), more, 0);
                SessionBatch batch(pipeline);
                const auto session = batch.make_session(const_cast<PolicySetup &>(plan));
                session->prefill(book(*pipeline.tokenizer(), 0, length));
                CHECK(session->held_peak_bytes() <= bound.prompt);
                CHECK(session->held_bytes() <= bound.text);
                for (int64_t i = 0; i < more && session->can_take(1); ++i) {
                    session->decode(session->greedy());
                    if (session->held_bytes() > bound.text) FAIL("token " << i);
                }
                CHECK(session->held_peak_bytes() <= bound.peak(1));
                // The bound is not much higher than what is needed.
                CHECK(bound.peak(1) < 6 * session->held_peak_bytes());
            }
        }
    }
}

TEST_CASE("a policy with a hard bound needs little memory for a long prompt") {
    PipelineOptions options = scheduler_pipeline_options({.seats = 2, .prefill_chunk = 64});
    Pipeline pipeline(rig_config(), options);
    const auto bound = [&](const std::vector<std::string> &sets, int64_t pinned = 0) {
        return cache_bound(pipeline, pipeline.policies().add(policy_section(sets)), 800, 100,
                           pinned);
    };
    const CacheBound none = bound({"plugin=none"});
    const CacheBound window = bound({"plugin=sliding_window", "budget.tokens=64"});
    const CacheBound snapkv = bound({"plugin=snapkv", "budget.tokens=64"});
    CHECK(window.peak(1) < none.peak(1) / 3);
    CHECK(snapkv.prompt > none.prompt / 2); // the whole prompt is held until its end
    CHECK(snapkv.text < none.text / 3);
    CHECK(none.text > none.prompt);
    // Further texts share the prompt under a policy that keeps all.
    CHECK(none.peak(4) < 2 * none.peak(1));
    CHECK(window.peak(4) == 4 * window.text);
    CHECK(bound({"plugin=sliding_window", "params.window=80"}, 200).peak(1) >
          bound({"plugin=sliding_window", "params.window=80"}).peak(1));
}

TEST_CASE("a prompt that is too long is refused unless the policy acts while it is read") {
    PipelineOptions options = scheduler_pipeline_options({.seats = 2});
    Pipeline pipeline(rig_config(), options);
    const auto plan = [&](const std::vector<std::string> &sets) -> PolicySetup & {
        return pipeline.policies().add(policy_section(sets));
    };
    check_prompt_fits(plan({"plugin=none"}), 1024);
    CHECK_THAT(
        error_text([&] { check_prompt_fits(plan({"plugin=none"}), 1025); }, ErrorKind::usage),
        Catch::Contains("1025"));
    CHECK_THAT(error_text(
                   [&] {
                       check_prompt_fits(plan({"plugin=snapkv", "budget.tokens=64"}), 1025);
                   },
                   ErrorKind::usage),
               Catch::Contains("snapkv"));
    check_prompt_fits(plan({"plugin=sliding_window", "budget.tokens=64"}), 5000);
}

TEST_CASE("the bound and the texts hold for models with attention windows") {
    for (const char *shape : {"gemma2", "mistral"}) {
        INFO(shape);
        const auto config = pipeline::config_from_overrides(
            windowed_sets(shape, "cpu", {"model.context=512", "backend.params.threads=1"}));
        const SchedulerLimits limits{.seats = 3, .prefill_chunk = 32, .kept = 2};
        const auto open = [&] {
            return std::make_unique<Pipeline>(config, scheduler_pipeline_options(limits));
        };
        const std::vector<PolicyChoice> policies = {
            {{"name", "none"}}, {{"name", "sliding_window"}, {"budget.tokens", "30"}}};
        std::vector<std::vector<int32_t>> expected;
        const auto pipeline = open();
        PolicyChoices choices(*pipeline);
        for (const PolicyChoice &policy : policies) {
            const auto lease =
                choices.find(policy, [](const std::function<void()> &task) { task(); });
            const CacheBound bound = cache_bound(*pipeline, *lease->plan, 150, 20, 0);
            Session session(*pipeline, *lease->plan);
            const GenerateResult result =
                generate(session, some_tokens(150), order_of({1}, 20).options);
            CHECK(session.held_peak_bytes() <= bound.peak(1));
            expected.push_back(result.ids);
        }
        Scheduler scheduler(open(), limits);
        std::vector<Answer> answers(4);
        for (size_t i = 0; i < 4; ++i) {
            submit(scheduler, order_of(some_tokens(150), 20, policies[i % 2]), answers[i]);
            if (i == 1) answers[0].wait();
        }
        for (size_t i = 0; i < 4; ++i) {
            answers[i].wait();
            CHECK(answers[i].only().ids == expected[i % 2]);
        }
        CHECK(scheduler.drain(10));
        CHECK(scheduler.stats().failed == 0);
    }
}
