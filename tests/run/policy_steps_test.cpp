// Tests of policies on models/tiny: the data that steps collect for them and its cost, and sessions
// that are forked to other policies.
#include "kv/scripted_policy.hpp"
#include "run/session_file.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <cmath>

using namespace keel;
using Catch::Contains;
using test::error_text;
using test::Script;
using test::scripted;

namespace {

pipeline::PipelineConfig policy_tiny(std::initializer_list<std::string> more = {}) {
    std::vector<std::string> sets{std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                                  "backend.plugin=cpu", "model.context=768"};
    sets.insert(sets.end(), more);
    return pipeline::config_from_overrides(sets);
}

PipelineOptions quiet(uint32_t sequences = 1) {
    PipelineOptions options;
    options.quiet_fallbacks = true;
    options.sequences = sequences;
    return options;
}

std::vector<int32_t> prompt(const Pipeline &pipeline, int tokens) {
    std::vector<int32_t> ids;
    for (int i = 0; i < tokens; ++i)
        ids.push_back(
            static_cast<int32_t>((i * 7919 + 13) % (pipeline.model().vocab_size - 300) + 280));
    return ids;
}

// Returns all logits of each step.
std::vector<float> follow(Session &session, int steps) {
    std::vector<float> all;
    for (int i = 0; i < steps; ++i) {
        const auto logits = session.logits();
        all.insert(all.end(), logits.begin(), logits.end());
        session.decode(session.greedy());
    }
    return all;
}

// Forwards to a tap and records the queries that it gets.
class Watch final : public StepTap {
  public:
    Watch(Pipeline &pipeline, int64_t layers)
        : pipeline_(pipeline), queries(static_cast<size_t>(layers)) {}
    Places places(uint32_t layer) override { return tap->places(layer); }
    void after_attention(uint32_t layer, const Tensor &q) override {
        tap->after_attention(layer, q);
        const int64_t m = q.dim(0), width = q.dim(1) * q.dim(2);
        const Tensor flat =
            Tensor::allocate(pipeline_.device(), KEEL_DTYPE_F32, {m, q.dim(1), q.dim(2)});
        keel_move_args args = {KEEL_HEADER(keel_move_args)};
        args.x = q.c();
        args.out = flat.c();
        const auto copy = pipeline_.executor().plan(KEEL_OP_COPY, args, {});
        pipeline_.executor().run(*copy, args);
        const auto rows = flat.read<float>();
        for (int64_t i = 0; i < m; ++i)
            queries[layer].emplace_back(rows.begin() + i * width, rows.begin() + (i + 1) * width);
    }
    StepTap *tap = nullptr;

  private:
    Pipeline &pipeline_;

  public:
    std::vector<std::vector<std::vector<float>>> queries; // [layer][token][heads * head_dim]
};

} // namespace

TEST_CASE(
    "steps that leave data for a policy are bitwise equal to plain ones until slots are evicted") {
    Pipeline plain(policy_tiny(), quiet());
    const auto ids = prompt(plain, 150);
    Session none(plain);
    none.prefill(ids);
    const auto wanted = follow(none, 20);
    CHECK(plain.graph().taps().list().empty());
    CHECK(plain.policy_setup().ops().empty());
    for (const char *policy : {"snapkv", "h2o", "tova", "keydiff", "knorm", "expected_attention",
                               "compactor", "kvzip", "random", "sliding_window"}) {
        INFO(policy);
        Pipeline pipeline(
            policy_tiny({std::string("policy.plugin=") + policy, "policy.budget.tokens=400"}),
            quiet());
        Session session(pipeline);
        session.prefill(ids);
        CHECK(follow(session, 20) == wanted);
        CHECK(session.stats().evictions == 0);
    }
}

TEST_CASE("decoding under a policy needs no further op, read or wait, except to move queries") {
    const auto decode_work = [](std::initializer_list<std::string> sets) {
        Pipeline pipeline(policy_tiny(sets), quiet());
        Session session(pipeline);
        session.prefill(prompt(pipeline, 100));
        for (int i = 0; i < 66; ++i) session.decode(session.greedy());
        session.logits();
        return session.stats().decode_stream;
    };
    const auto none = decode_work({});
    const auto windowed = decode_work({"policy.plugin=snapkv", "policy.params.decode=true",
                                       "policy.params.window=32", "policy.budget.tokens=400"});
    CHECK(windowed.ops <= none.ops + 2);
    CHECK(windowed.reads == none.reads);
    CHECK(windowed.writes == none.writes);
    CHECK(windowed.waits == none.waits);
    const auto keys = decode_work({"policy.plugin=keydiff", "policy.budget.tokens=400"});
    CHECK(keys.ops == none.ops);
    CHECK(keys.reads == none.reads);
    const auto running = decode_work({"policy.plugin=h2o", "policy.budget.tokens=400"});
    // some steps allocate more memory and zero it for new slots
    CHECK(running.ops <= none.ops + 2);
    CHECK(running.reads == none.reads);
    CHECK(running.writes == none.writes);
}

TEST_CASE("scores that a graph's steps collect are the attention over the kept slots") {
    Pipeline pipeline(policy_tiny(), quiet());
    const ModelConfig &m = pipeline.model();
    const auto heads = static_cast<size_t>(m.heads),
               group = heads / static_cast<size_t>(m.kv_heads);
    const auto dim = static_cast<size_t>(m.head_dim);
    std::unique_ptr<CacheManager> manager;
    Watch watch(pipeline, m.layers);
    const KvTemplate kv(pipeline.kv_shape());
    const Tensor out = Tensor::shape(KEEL_DTYPE_F32, {m.kv_heads, pipeline.context(), m.head_dim});
    keel_keys_args keys = {KEEL_HEADER(keel_keys_args)};
    keys.kv = kv.view();
    keys.out = out.c();
    keys.end = pipeline.context();
    const auto read_keys = pipeline.executor().plan(KEEL_OP_KEY_PROJECT, keys, {});
    int64_t compared = 0;
    double largest = 0;

    Script script;
    script.needs.needs = KEEL_NEED_WINDOW_SCORES | KEEL_NEED_POSITIONS;
    script.needs.granularity = KEEL_KEEP_HEAD_RAGGED;
    script.needs.output = KEEL_OUTPUT_KEEP;
    script.needs.window = 5;
    script.needs.reduce_queries = KEEL_REDUCE_SUM;
    script.needs.reduce_group = KEEL_REDUCE_MEAN;
    script.decide = [&](const keel_policy_input &in, keel_policy_decision &decision) {
        const Tensor held = Tensor::allocate(pipeline.device(), KEEL_DTYPE_F32,
                                             {m.kv_heads, in.stride, m.head_dim});
        keel_keys_args args = {KEEL_HEADER(keel_keys_args)};
        args.kv = manager->cache().view(in.layer);
        args.out = held.c();
        args.end = in.stride;
        pipeline.executor().run(*read_keys, args);
        const auto k = held.read<float>();
        for (size_t h = 0; h < in.kv_heads; ++h) {
            const auto length = static_cast<size_t>(in.lengths[h]),
                       width = static_cast<size_t>(in.stride);
            std::vector<double> wanted(length, 0.0);
            for (int64_t token = in.next_position - 5; token < in.next_position; ++token) {
                for (size_t g = 0; g < group; ++g) {
                    const auto &q = watch.queries[in.layer][static_cast<size_t>(token)];
                    std::vector<double> p(length, 0.0);
                    double sum = 0;
                    for (size_t j = 0; j < length; ++j) {
                        if (in.positions[h * width + j] > token) continue;
                        double dot = 0;
                        for (size_t d = 0; d < dim; ++d)
                            dot += double{q[(h * group + g) * dim + d]} *
                                   double{k[(h * width + j) * dim + d]};
                        sum += p[j] = std::exp(dot * m.attention_scale());
                    }
                    for (size_t j = 0; j < length; ++j)
                        wanted[j] += p[j] / sum / static_cast<double>(group);
                }
            }
            int32_t n = 0;
            for (size_t j = 0; j < length; ++j, ++compared) {
                largest = std::max(largest, std::abs(double{in.scores[h * width + j]} - wanted[j]));
                if (j < 3 || j + 20 > length || (j + in.layer) % (2 + h) == 0)
                    decision.keep[h * width + static_cast<size_t>(n++)] = static_cast<int32_t>(j);
            }
            decision.keep_count[h] = n;
        }
        return KEEL_OK;
    };
    CacheConfig config;
    config.policy = scripted(script);
    config.budget_unit = BudgetUnit::tokens;
    config.budget = 60;
    config.attention_scale = static_cast<float>(m.attention_scale());
    PolicySetup plan(pipeline.executor(), pipeline.kv_shape(), pipeline.device().host(), config);
    const auto taps = pipeline.graph().plan_taps(plan.tap_forms());
    manager = std::make_unique<CacheManager>(plan, pipeline.placement());
    const auto ids = prompt(pipeline, 160);
    for (size_t done = 0; done < ids.size();) {
        const size_t n = done < 90 ? 90 : 1;
        const StepKind kind = n > 1 ? StepKind::prefill_end : StepKind::decode;
        manager->before_append(static_cast<int64_t>(n), kind);
        const auto next = manager->next_positions(static_cast<int64_t>(n));
        const std::vector<int32_t> positions(next.begin(), next.end());
        manager->append(static_cast<int64_t>(n));
        watch.tap = manager->begin_step(static_cast<int64_t>(n), kind);
        REQUIRE(watch.tap != nullptr);
        pipeline.graph().forward({.positions = positions,
                                  .kv = manager->cache().views(),
                                  .ids = std::span(ids).subspan(done, n),
                                  .logit_rows = 1,
                                  .tap = &watch,
                                  .tap_ops = taps.get()});
        manager->after_step(kind);
        done += n;
    }
    CHECK(script.decided >= 4 * static_cast<int>(m.layers));
    CHECK(compared > 1000);
    CHECK(largest < 5e-5);
    manager.reset(); // the manager must be destroyed before its plan
}

TEST_CASE("a session that is forked to a policy continues as if it always had this policy") {
    Pipeline shared(policy_tiny(), quiet(3));
    const auto ids = prompt(shared, 300);
    const std::vector<std::string> policies = {
        "snapkv",    "h2o",   "tova",   "keydiff",       "expected_attention",
        "compactor", "kvzip", "random", "sliding_window"};
    std::vector<PolicySetup *> plans;
    for (const std::string &name : policies) {
        const auto config = policy_tiny(
            {"policy.plugin=" + name, "policy.budget.tokens=100", "policy.positions=absolute"});
        plans.push_back(&shared.policies().add(config.policy));
    }
    Session parent(shared, shared.policies().add_shared_prefill(plans));
    parent.prefill(ids, false);
    const auto first = std::vector<float>(parent.logits().begin(), parent.logits().end());
    for (size_t i = 0; i < policies.size(); ++i) {
        INFO(policies[i]);
        auto arm = parent.fork(*plans[i]);
        CHECK(std::vector<float>(arm->logits().begin(), arm->logits().end()) == first);
        arm->end_prompt();
        CHECK(arm->cache().cache().max_length() <= 100 + 300 * (policies[i] == "kvzip"));
        CHECK(arm->stats().evictions == 1);
        const auto forked = follow(*arm, 40);
        Pipeline alone(policy_tiny({"policy.plugin=" + policies[i], "policy.budget.tokens=100",
                                    "policy.positions=absolute"}),
                       quiet());
        Session session(alone);
        session.prefill(ids);
        CHECK(follow(session, 40) == forked);
        CHECK(arm->stats().evictions == session.stats().evictions);
    }
    CHECK(parent.cache().cache().max_length() == 300);
    auto full = parent.fork(shared.policy_setup());
    full->end_prompt();
    const auto wanted = follow(*full, 10);
    Session plain(shared);
    plain.prefill(ids);
    CHECK(follow(plain, 10) == wanted);
    CHECK_THAT(error_text([&] { plain.fork(*plans[1]); }, ErrorKind::input),
               Contains("policy h2o: this policy needs running_scores"));
}

TEST_CASE("tokens after a prompt keep no queries for another eviction") {
    Pipeline p(policy_tiny({"policy.plugin=snapkv", "policy.budget.tokens=64"}), quiet());
    Session session(p);
    session.prefill(prompt(p, 200));
    const uint64_t at_end = session.policy_bytes();
    session.take_in(prompt(p, 20));
    CHECK(session.policy_bytes() == at_end);
    CHECK_THAT(error_text([&] { session.end_prompt(); }, ErrorKind::usage),
               Contains("end_prompt() was called after take_in()"));
    CHECK_THAT(error_text([&] { session.fork()->end_prompt(); }, ErrorKind::usage),
               Contains("end_prompt() was called after take_in()"));
    session.prefill(prompt(p, 20), false); // tokens of another prompt, which may end now
    CHECK(session.policy_bytes() > at_end);
    session.end_prompt();
    CHECK(session.policy_bytes() == at_end);
}

TEST_CASE("a prefill that cannot serve two policies at once is refused with the need's name") {
    Pipeline shared(policy_tiny(), quiet(2));
    std::vector<PolicySetup *> plans;
    for (const char *sinks : {"4", "8"}) {
        const auto config =
            policy_tiny({"policy.plugin=expected_attention", "policy.budget.tokens=100",
                         std::string("policy.params.sinks=") + sinks});
        plans.push_back(&shared.policies().add(config.policy));
    }
    CHECK_THAT(error_text([&] { shared.policies().add_shared_prefill(plans); }, ErrorKind::input),
               Contains("policy expected_attention needs query_stats in another form"));
}

TEST_CASE("a session under an added policy is not saved as one under the pipeline's policy") {
    Pipeline pipeline(policy_tiny(), quiet());
    PolicySetup &plan = pipeline.policies().add(
        policy_tiny({"policy.plugin=h2o", "policy.budget.tokens=100"}).policy);
    Session session(pipeline, plan);
    session.prefill(prompt(pipeline, 20));
    const test::TempFolder folder;
    CHECK_THAT(
        error_text([&] { save_session(session, folder / "s.session", {}); }, ErrorKind::usage),
        Contains("policy h2o was added to an open pipeline"));
    CHECK_FALSE(std::filesystem::exists(folder / "s.session"));
}
