// Compares mixtures of experts with Hugging Face transformers on the same weights.

#include "model/expert_rig.hpp"

using namespace keel;
using namespace keel::test;

namespace {

// Checks the logits after the session's last token. Returns the number of records for this token.
int check_logits(std::span<const float> logits, const GoldenCase &golden, int64_t position) {
    int records = 0;
    for (const GoldenLogits &g : golden.logits) {
        if (g.position != position) continue;
        double worst = 0;
        for (size_t i = 0; i < g.top_ids.size(); ++i)
            worst = std::max(
                worst, std::abs(static_cast<double>(logits[static_cast<size_t>(g.top_ids[i])]) -
                                g.top_values[i]));
        for (size_t i = 0; i < g.every.size(); ++i)
            worst = std::max(
                worst, std::abs(static_cast<double>(logits[i * static_cast<size_t>(g.stride)]) -
                                g.every[i]));
        CHECK(worst < expert_bound);
        ++records;
    }
    REQUIRE(argmax(logits) == golden.argmax[static_cast<size_t>(position)]);
    return records;
}

int check_session(Session &session, const GoldenCase &golden) {
    return check_logits(session.logits(), golden, session.tokens() - 1);
}

} // namespace

TEST_CASE("mixtures of experts give the logits and 100 greedy tokens of transformers") {
    const std::vector<GoldenCase> cases = expert_cases();
    const std::vector<Miniature> models = expert_miniatures();
    REQUIRE(cases.size() == models.size());
    for (size_t i = 0; i < cases.size(); ++i) {
        const GoldenCase &golden = cases[i];
        REQUIRE(golden.greedy.size() == 100);
        const TempFolder folder;
        write_miniature(folder.path(), models[i]);
        for (const std::string backend : {"cpu", "reference"}) {
            INFO(golden.name << " on " << backend);
            const auto pipeline = open_exact(folder.path(), backend);
            Session session(*pipeline);
            session.prefill(golden.ids);
            int records = check_session(session, golden);
            for (size_t t = 0; t + 1 < golden.greedy.size(); ++t) {
                REQUIRE(session.greedy() == golden.greedy[t]);
                session.decode(golden.greedy[t]);
                records += check_session(session, golden);
            }
            CHECK(session.greedy() == golden.greedy.back());
            CHECK(records == 4);
        }
    }
}

TEST_CASE("mixtures of experts give the same logits token by token and in chunks") {
    const std::vector<GoldenCase> cases = expert_cases();
    const std::vector<Miniature> models = expert_miniatures();
    for (size_t i = 0; i < cases.size(); ++i) {
        const GoldenCase &golden = cases[i];
        INFO(golden.name);
        const TempFolder folder;
        write_miniature(folder.path(), models[i]);
        const auto pipeline = open_exact(folder.path(), "cpu");
        Session by_token(*pipeline), in_chunks(*pipeline);
        int records = 0;
        for (const int32_t id : golden.ids) {
            by_token.decode(id);
            records += check_session(by_token, golden);
        }
        CHECK(records == 4);
        const std::span<const int32_t> ids(golden.ids);
        size_t at = 0;
        for (const size_t n : {1, 3, 20, 16}) {
            in_chunks.prefill(ids.subspan(at, n), at + n == ids.size());
            at += n;
            check_session(in_chunks, golden);
        }
        CHECK(at == ids.size());
    }
}

TEST_CASE("a sequence of a mixture of experts gives the same logits in a batch with others") {
    const std::vector<GoldenCase> cases = expert_cases();
    const std::vector<Miniature> models = expert_miniatures();
    for (size_t i = 0; i < cases.size(); ++i) {
        const GoldenCase &golden = cases[i];
        INFO(golden.name);
        const TempFolder folder;
        write_miniature(folder.path(), models[i]);
        PipelineOptions options;
        options.batch = 3;
        const auto pipeline = open_exact(folder.path(), "cpu", {}, options);
        SessionBatch batch(*pipeline);
        std::vector<std::unique_ptr<Session>> sessions;
        for (int s = 0; s < 3; ++s) sessions.push_back(batch.make_session());
        sessions[0]->prefill(std::vector<int32_t>{5, 90, 17, 41});
        sessions[1]->prefill(std::vector<int32_t>{33, 8});
        // The others decode while the prompt is read, and after it.
        const std::vector<SessionBatch::Part> parts = {
            {sessions[0].get(), {&golden.ids[3], 1}, StepKind::decode},
            {sessions[2].get(), golden.ids, StepKind::prefill_end},
            {sessions[1].get(), {&golden.ids[9], 1}, StepKind::decode}};
        for (const auto &outcome : batch.step(parts, SessionBatch::Read::logits))
            REQUIRE(outcome.kind == SessionBatch::Outcome::Kind::done);
        int records = check_session(*sessions[2], golden);
        const std::vector<Session *> all = {sessions[2].get(), sessions[0].get(),
                                            sessions[1].get()};
        for (const int32_t id : golden.greedy) {
            const std::vector<int32_t> ids = {id, (id + 1) % 199, (id + 2) % 199};
            batch.decode(all, ids, SessionBatch::Read::logits);
            if (sessions[2]->tokens() == 140) break; // the golden file ends here
            records += check_session(*sessions[2], golden);
        }
        CHECK(records == 4);
    }
}

// With one layer, keys and values depend only on their own token. So a cache that lost some tokens
// must give the same result as a new run on the kept tokens.
TEST_CASE("mixtures of experts continue after an eviction as with only the kept tokens") {
    const GoldenCase golden = expert_cases().front();
    for (const Miniature &whole : expert_miniatures()) {
        INFO(whole.name);
        const TempFolder folder;
        write_miniature(folder.path(), shortened(whole, 1));
        const auto evicting = open_exact(folder.path(), "cpu",
                                         {"policy.plugin=sliding_window", "policy.budget.tokens=24",
                                          "policy.budget.slack=8", "policy.protect.prefix=4",
                                          "policy.positions=rerotated"});
        const auto plain = open_exact(folder.path(), "cpu");
        Session a(*evicting), b(*plain);
        a.prefill(golden.ids);
        for (size_t i = 0; i < 30; ++i) a.decode(golden.greedy[i]);
        REQUIRE(a.stats().evictions > 2);
        b.prefill(kept_by_window(a, 4));
        CHECK(largest_gap(a.logits(), b.logits()) < expert_bound);
    }
}

TEST_CASE("mixtures of experts give the reference's logits under h2o and with quantized weights") {
    const GoldenCase golden = expert_cases().front();
    for (const Miniature &model : expert_miniatures()) {
        const TempFolder folder;
        write_miniature(folder.path(), model);
        const bool is_whole_blocks = model.name != "qwen3moe_all"; // experts of size 40
        for (const std::string weights : {"f32", "q8_0", "q4_0"}) {
            if (weights != "f32" && !is_whole_blocks) continue;
            INFO(model.name << ", weights " << weights);
            const std::vector<std::string> more = {"model.weights=" + weights, "policy.plugin=h2o",
                                                   "policy.budget.tokens=24"};
            const auto cpu = open_exact(folder.path(), "cpu", more),
                       reference = open_exact(folder.path(), "reference", more);
            Session a(*cpu), b(*reference);
            a.prefill(golden.ids);
            b.prefill(golden.ids);
            for (size_t i = 0; i < 12; ++i) {
                a.decode(golden.greedy[i]);
                b.decode(golden.greedy[i]);
                REQUIRE(largest_gap(a.logits(), b.logits()) < expert_bound);
            }
            CHECK(a.stats().evictions > 0);
        }
    }
}

TEST_CASE("with fast products, quantized experts stay near the exact logits") {
    const GoldenCase golden = expert_cases().front();
    const TempFolder folder;
    write_miniature(folder.path(), expert_miniature("mixtral")); // its choices are the least close
    const auto exact = open_exact(folder.path(), "cpu", {"model.weights=q8_0"}),
               fast = open_exact(folder.path(), "cpu",
                                 {"model.weights=q8_0", "backend.params.compute=fast"});
    Session a(*exact), b(*fast);
    a.prefill(golden.ids);
    b.prefill(golden.ids);
    CHECK(largest_gap(a.logits(), b.logits()) < 0.15);
}
