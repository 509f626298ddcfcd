// Tests of steps that take chunks of prompts beside decoded tokens of other sequences.

#include "support/error_text.hpp"
#include "support/texts_at_once.hpp"

#include <fstream>
#include <sstream>

using namespace keel;
using namespace keel::test;

namespace {

std::unique_ptr<Pipeline> open(std::vector<std::string> more, uint32_t batch) {
    std::vector<std::string> sets{std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                                  "backend.plugin=cpu",
                                  "backend.params.compute=exact",
                                  "strict=true",
                                  "sampling.temperature=0",
                                  "sampling.repetition_penalty=1",
                                  "model.context=1536",
                                  "kv.dtype=f32"};
    sets.insert(sets.end(), more.begin(), more.end());
    PipelineOptions options;
    options.batch = batch;
    return std::make_unique<Pipeline>(pipeline::config_from_overrides(sets), options);
}

// The first n tokens of a text, from token `first` on.
std::vector<int32_t> tokens_of_book(const Tokenizer &tokenizer, size_t first, size_t n) {
    std::ifstream in(std::string(KEEL_SOURCE_DIR) + "/models/tiny/heldout.txt");
    std::stringstream text;
    text << in.rdbuf();
    const std::vector<int32_t> all = tokenizer.encode(text.str().substr(0, 16000));
    REQUIRE(all.size() > first + n);
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(first);
    return {at, at + static_cast<std::ptrdiff_t>(n)};
}

// Prompts of one chunk and of several.
std::vector<Wish> long_wishes(const Pipeline &pipeline) {
    std::vector<Wish> all;
    size_t first = 0;
    for (const size_t n : {3, 700, 40, 513, 740, 256}) {
        all.push_back({tokens_of_book(*pipeline.tokenizer(), first, n), 12});
        first += 100;
    }
    return all;
}

std::vector<int32_t> kept_positions(const Session &session) {
    std::vector<int32_t> all;
    const KvCache &cache = session.cache().cache();
    for (uint32_t l = 0; l < cache.shape().layers; ++l)
        for (uint32_t h = 0; h < cache.shape().kv_heads; ++h)
            for (const int32_t position : cache.positions(l, h)) all.push_back(position);
    return all;
}

} // namespace

TEST_CASE("long prompts that are read beside other texts give the texts written alone") {
    const std::vector<std::vector<std::string>> policies = {
        {},
        {"policy.plugin=sliding_window", "policy.budget.tokens=64"},
        {"policy.plugin=snapkv", "policy.budget.tokens=64"},
        {"policy.plugin=h2o", "policy.budget.tokens=64"},
        {"policy.plugin=kvzip", "policy.budget.tokens=64"}};
    for (const auto &policy : policies) {
        INFO((policy.empty() ? "none" : policy.front()));
        const auto pipeline = open(policy, 4);
        const std::vector<Wish> all = long_wishes(*pipeline);
        check_same_texts(*pipeline, all, texts_alone(*pipeline, all), texts_at_once(*pipeline, all),
                         "f32");
    }
}

TEST_CASE("other sequences do not change what a policy keeps of a prompt") {
    const auto pipeline =
        open({"policy.plugin=sliding_window", "policy.budget.tokens=100",
              "policy.trigger.on=[budget, prefill_end]", "policy.budget.slack=16"},
             3);
    const std::vector<int32_t> prompt = tokens_of_book(*pipeline->tokenizer(), 0, 1200);
    Session alone(*pipeline);
    alone.prefill(prompt);

    SessionBatch batch(*pipeline);
    const auto reader = batch.make_session(), writer = batch.make_session();
    writer->prefill(std::span(prompt).first(5));
    int32_t next = writer->greedy();
    reader->check_prompt(std::ssize(prompt));
    std::span<const int32_t> unread = prompt;
    int steps = 0;
    while (!unread.empty()) {
        const auto n = static_cast<size_t>(reader->next_chunk(std::ssize(unread)));
        const bool is_last = n == unread.size();
        const SessionBatch::Part parts[] = {
            {reader.get(), unread.first(n),
             is_last ? StepKind::prefill_end : StepKind::prefill_chunk},
            {writer.get(), {&next, 1}, StepKind::decode}};
        for (const auto &outcome : batch.step(parts, SessionBatch::Read::greedy))
            REQUIRE(outcome.kind == SessionBatch::Outcome::Kind::done);
        next = writer->greedy();
        unread = unread.subspan(n);
        ++steps;
    }
    CHECK(steps >= 3);
    CHECK(kept_positions(*reader) == kept_positions(alone));
    CHECK(reader->greedy() == alone.greedy());
    CHECK(reader->tokens() == 1200);
    CHECK(reader->stats().prefill_tokens == 1200);
    CHECK(reader->stats().decode_tokens == 0);
    CHECK(writer->stats().decode_tokens == static_cast<uint64_t>(steps));
    CHECK(batch.stats().tokens == static_cast<uint64_t>(steps));
}

TEST_CASE("several prompts end in one step, and each gets its own logits") {
    const auto pipeline = open({}, 3);
    SessionBatch batch(*pipeline);
    const std::vector<int32_t> a = tokens_of_book(*pipeline->tokenizer(), 0, 200),
                               b = tokens_of_book(*pipeline->tokenizer(), 300, 100);
    const auto first = batch.make_session(), second = batch.make_session();
    const SessionBatch::Part parts[] = {{first.get(), a, StepKind::prefill_end},
                                        {second.get(), b, StepKind::prefill_end}};
    batch.step(parts, SessionBatch::Read::logits);
    for (const auto &[session, prompt] : {std::pair{first.get(), &a}, {second.get(), &b}}) {
        Session alone(*pipeline);
        alone.prefill(*prompt);
        const auto mine = session->logits(), theirs = alone.logits();
        REQUIRE(mine.size() == theirs.size());
        for (size_t i = 0; i < mine.size(); ++i) CHECK(std::abs(mine[i] - theirs[i]) < 1e-3);
    }
}

TEST_CASE("parts that cannot take a step together are refused before anything happens") {
    const auto pipeline = open({}, 3);
    SessionBatch batch(*pipeline);
    const auto a = batch.make_session(), b = batch.make_session();
    const std::vector<int32_t> prompt = tokens_of_book(*pipeline->tokenizer(), 0, 600);
    const auto refused = [&](const std::vector<SessionBatch::Part> &parts) {
        const std::string text =
            error_text([&] { batch.step(parts, SessionBatch::Read::greedy); }, ErrorKind::usage);
        CHECK(a->tokens() == 0);
        CHECK_FALSE(a->is_broken());
        return text;
    };
    const std::span<const int32_t> ids = prompt;
    CHECK(refused({{a.get(), ids, StepKind::prefill_end}})
              .find("takes 600 tokens; expected 1 to 512") != std::string::npos);
    CHECK(refused({{a.get(), {}, StepKind::prefill_end}}).find("takes 0 tokens") !=
          std::string::npos);
    CHECK(refused({{a.get(), ids.first(8), StepKind::prefill_pause}}).find("takes 8 tokens") !=
          std::string::npos);
    CHECK(refused({{a.get(), ids.first(512), StepKind::prefill_chunk},
                   {b.get(), ids.first(8), StepKind::prefill_end}})
              .find("a step of 520 tokens; the pipeline was made for 514") != std::string::npos);
    CHECK(error_text([&] { a->check_prompt(2000); }, ErrorKind::resource).find("model.context") !=
          std::string::npos);
}

TEST_CASE("an error of one text's progress callback ends this text alone") {
    const auto pipeline = open({}, 2);
    SessionBatch batch(*pipeline);
    const std::vector<Wish> all = {{tokens_of_book(*pipeline->tokenizer(), 0, 600), 4},
                                   {tokens_of_book(*pipeline->tokenizer(), 300, 40), 4}};
    size_t begun = 0;
    std::vector<std::string> errors(2);
    std::vector<std::vector<int32_t>> texts(2);
    generate_batch(
        batch, *pipeline,
        [&]() -> std::optional<TextRequest> {
            if (begun == all.size()) return std::nullopt;
            TextRequest request{all[begun].ids, options_of(*pipeline, all[begun])};
            if (begun++ == 0)
                request.options.progress = [](const char *, uint64_t, uint64_t) {
                    throw Error(ErrorKind::usage, "enough");
                };
            return request;
        },
        [&](size_t number, const GenerateResult &result, const Error *error) {
            if (error != nullptr) errors[number] = error->what();
            texts[number] = result.ids;
        });
    CHECK(errors == std::vector<std::string>{"enough", ""});
    CHECK(texts[0].empty());
    CHECK(texts[1].size() == 4);
}
