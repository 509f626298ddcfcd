// Tests of several sequences at once. Each must give the same text as alone, whatever sequences
// join, leave or fail.

#include "support/error_text.hpp"
#include "support/texts_at_once.hpp"

#include <limits>

using namespace keel;
using namespace keel::test;

namespace {

std::vector<std::string> tiny(std::initializer_list<std::string> more = {}) {
    std::vector<std::string> sets{std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                                  "backend.plugin=cpu", "strict=true", "sampling.temperature=0",
                                  "sampling.repetition_penalty=1"};
    sets.insert(sets.end(), more);
    return sets;
}

std::unique_ptr<Pipeline> make(const std::vector<std::string> &sets, uint32_t batch) {
    PipelineOptions options;
    options.batch = batch;
    return std::make_unique<Pipeline>(pipeline::config_from_overrides(sets), options);
}

std::vector<std::string> with_policy(std::vector<std::string> sets, const std::string &policy) {
    sets.push_back("policy.plugin=" + policy);
    if (policy != "none") sets.emplace_back("policy.budget.tokens=16");
    if (policy == "snapkv") sets.emplace_back("policy.params.window=8");
    return sets;
}

void check_as_alone(const std::vector<std::string> &sets, uint32_t batch, size_t texts,
                    int64_t tokens, const std::string &kv) {
    const auto pipeline = make(sets, batch);
    const std::vector<Wish> all = wishes(*pipeline->tokenizer(), texts, tokens);
    check_same_texts(*pipeline, all, texts_alone(*pipeline, all), texts_at_once(*pipeline, all),
                     kv);
}

} // namespace

TEST_CASE("texts generated together are the same as alone, for every KV dtype and policy") {
    for (const std::string kv : {"f32", "f16", "q8_0", "q4_0"}) {
        for (const std::string policy : {"none", "sliding_window", "snapkv"}) {
            INFO(kv << ", " << policy);
            // `fast` rounds products of several rows, but not products of one row.
            check_as_alone(
                with_policy(tiny({"kv.dtype=" + kv, "backend.params.compute=exact"}), policy), 5, 7,
                24, kv);
        }
    }
}

TEST_CASE("texts can be generated together in any number") {
    for (const uint32_t batch : {2U, 3U, 8U}) {
        INFO(batch);
        check_as_alone(tiny({"kv.dtype=f32", "backend.params.compute=exact"}), batch, 10, 16,
                       "f32");
        check_as_alone(tiny({"kv.dtype=f32", "model.weights=q4_0"}), batch, 10, 16, "f32");
    }
}

TEST_CASE("texts can be generated together on the reference") {
    std::vector<std::string> sets = tiny({"kv.dtype=f32"});
    sets[1] = "backend.plugin=reference";
    check_as_alone(sets, 3, 4, 6, "f32");
}

TEST_CASE("texts that are sampled together have their own random numbers") {
    const auto pipeline = make({tiny({})[0], "backend.plugin=cpu", "sampling.temperature=0.8"}, 3);
    const std::vector<Wish> all = wishes(*pipeline->tokenizer(), 4, 12);
    check_same_texts(*pipeline, all, texts_alone(*pipeline, all), texts_at_once(*pipeline, all),
                     "f16");
}

TEST_CASE("a sequence that is full reports it, and the others continue") {
    const auto pipeline = make(tiny({"model.context=40", "kv.dtype=f32"}), 3);
    SessionBatch batch(*pipeline);
    const std::vector<Wish> all = wishes(*pipeline->tokenizer(), 3, 40);
    const auto alone = [&](size_t i, size_t n) {
        Session session(*pipeline);
        session.prefill(all[i].ids);
        std::vector<int32_t> ids{session.greedy()};
        while (ids.size() < n) {
            session.decode(ids.back());
            ids.push_back(session.greedy());
        }
        return ids;
    };
    std::vector<std::unique_ptr<Session>> owned;
    std::vector<Session *> sessions;
    std::vector<int32_t> ids;
    std::vector<std::vector<int32_t>> texts;
    for (const Wish &wish : all) {
        owned.push_back(batch.make_session());
        owned.back()->prefill(wish.ids);
        sessions.push_back(owned.back().get());
        ids.push_back(owned.back()->greedy());
        texts.push_back({ids.back()});
    }
    bool was_full = false;
    for (int step = 0; step < 30; ++step) {
        const std::vector<int64_t> before{sessions[0]->tokens(), sessions[1]->tokens(),
                                          sessions[2]->tokens()};
        const auto outcomes = batch.decode(sessions, ids, SessionBatch::Read::greedy);
        for (size_t i = 0; i < 3; ++i) {
            const bool fits = before[i] < 40;
            CHECK((outcomes[i].kind == SessionBatch::Outcome::Kind::done) == fits);
            CHECK(sessions[i]->tokens() == before[i] + (fits ? 1 : 0));
            if (!fits) {
                was_full = true;
                CHECK(outcomes[i].detail.find("model.context = 40") != std::string::npos);
                continue;
            }
            ids[i] = sessions[i]->greedy();
            texts[i].push_back(ids[i]);
        }
    }
    CHECK(was_full);
    for (size_t i = 0; i < 3; ++i) CHECK(texts[i] == alone(i, texts[i].size()));
}

TEST_CASE("a sequence can continue alone after a step with others, and the other way round") {
    const auto pipeline = make(tiny({"kv.dtype=f32"}), 2);
    SessionBatch batch(*pipeline);
    const std::vector<Wish> all = wishes(*pipeline->tokenizer(), 2, 12);
    const auto alone = texts_alone(*pipeline, all);
    auto a = batch.make_session(), b = batch.make_session();
    a->prefill(all[0].ids);
    std::vector<int32_t> mine{a->greedy()};
    b->prefill(all[1].ids);
    int32_t other = b->greedy();
    for (int i = 0; mine.size() < alone[0].size(); ++i) {
        if (i % 3 == 2) {
            a->decode(mine.back());
            mine.push_back(a->greedy());
            continue;
        }
        Session *const both[] = {b.get(), a.get()};
        const int32_t ids[] = {other, mine.back()};
        const bool greedy = i % 3 == 0;
        batch.decode(both, ids, greedy ? SessionBatch::Read::greedy : SessionBatch::Read::logits);
        if (greedy) CHECK(a->greedy() == a->greedy());
        other = b->greedy();
        mine.push_back(a->greedy());
        CHECK(a->logits().size() == static_cast<size_t>(pipeline->model().vocab_size));
    }
    CHECK(mine == alone[0]);
    CHECK(batch.stats().tokens == 2 * batch.stats().steps);
    CHECK(a->stats().decode_tokens == mine.size() - 1);
}

TEST_CASE("sequences that are a whole context apart share the RoPE tables") {
    // If a text is longer than the context, the ring of RoPE tables wraps around: position p and
    // position p + context need the same row.
    std::vector<std::string> sets =
        with_policy(tiny({"model.context=64", "kv.dtype=f32"}), "sliding_window");
    const auto pipeline = make(sets, 2);
    const std::vector<Wish> all = wishes(*pipeline->tokenizer(), 2, 20);
    SessionBatch batch(*pipeline);
    const auto alone = [&](const std::vector<int32_t> &prompt, size_t first, size_t n) {
        Session session(*pipeline);
        session.prefill(prompt);
        std::vector<int32_t> ids{session.greedy()};
        while (ids.size() < first + n) {
            session.decode(ids.back());
            ids.push_back(session.greedy());
        }
        return ids;
    };
    const std::vector<int32_t> prompt = all[1].ids;
    const auto late = alone(prompt, 64, 6), early = alone(prompt, 0, 6);
    auto a = batch.make_session(), b = batch.make_session();
    a->prefill(prompt);
    for (size_t i = 0; i < 64; ++i) a->decode(late[i]);
    b->prefill(prompt);
    std::vector<int32_t> ids{late[64], early[0]};
    REQUIRE(a->tokens() == b->tokens() + 64);
    for (size_t i = 1; i < 6; ++i) {
        Session *const both[] = {a.get(), b.get()};
        batch.decode(both, ids, SessionBatch::Read::greedy);
        ids = {a->greedy(), b->greedy()};
        CHECK(ids[0] == late[64 + i]);
        CHECK(ids[1] == early[i]);
    }
}

TEST_CASE("sequences that cannot take a step together are refused before anything runs") {
    const auto pipeline = make(tiny(), 2), other = make(tiny(), 2), single = make(tiny(), 1);
    CHECK(error_text([&] { SessionBatch batch(*single); }, ErrorKind::usage)
              .find("one sequence at a time") != std::string::npos);
    SessionBatch batch(*pipeline);
    auto a = batch.make_session(), b = batch.make_session(), c = batch.make_session();
    Session stranger(*other);
    const std::vector<int32_t> prompt{5, 6, 7};
    for (Session *session : {a.get(), b.get(), c.get(), &stranger}) session->prefill(prompt);
    const auto refused = [&](std::vector<Session *> sessions) {
        const std::vector<int32_t> ids(sessions.size(), 5);
        const std::string text = error_text(
            [&] { batch.decode(sessions, ids, SessionBatch::Read::greedy); }, ErrorKind::usage);
        CHECK(a->tokens() == 3);
        CHECK_FALSE(a->is_broken());
        return text;
    };
    CHECK(refused({}).find("0 sequences") != std::string::npos);
    CHECK(refused({a.get(), b.get(), c.get()}).find("3 sequences") != std::string::npos);
    CHECK(refused({a.get(), a.get()}).find("occurs twice") != std::string::npos);
    CHECK(refused({a.get(), &stranger}).find("another pipeline") != std::string::npos);
    b->reset();
    CHECK(refused({a.get(), b.get()}).find("has not read a prompt yet") != std::string::npos);
    CHECK(error_text([&] { make(tiny({"kv.max_mib=1"}), 2); }).find("kv.max_mib") !=
          std::string::npos);
}
