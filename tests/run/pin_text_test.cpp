#include "run/generate.hpp"
#include "run/pin_text.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using Catch::Contains;
using test::error_text;

namespace {

const std::string tiny_model = std::string(KEEL_SOURCE_DIR) + "/models/tiny";

} // namespace

TEST_CASE("a pin is the shortest run of tokens that contains a text, which must be unique in the "
          "prompt") {
    const auto tokenizer = load_tokenizer(tiny_model);
    const std::string prompt =
        "Once upon a time there was a fox. The fox had a golden ball, and the ball was lost.";
    const std::vector<int32_t> ids = tokenizer->encode(prompt);
    for (const std::string text : {"golden ball", "Once", "lost.", "had a gold", "e"}) {
        INFO(text);
        if (prompt.find(text) != prompt.rfind(text)) continue;
        const TokenRun run = find_text(*tokenizer, ids, text, "generation.pin");
        const auto part = std::span(ids).subspan(static_cast<size_t>(run.from),
                                                 static_cast<size_t>(run.to - run.from));
        CHECK_THAT(tokenizer->decode(part), Contains(text));
        if (part.size() > 1) { // no shorter part contains the text
            CHECK_THAT(tokenizer->decode(part.subspan(1)), !Contains(text));
            CHECK_THAT(tokenizer->decode(part.first(part.size() - 1)), !Contains(text));
        }
    }
    CHECK(find_text(*tokenizer, ids, prompt, "generation.pin").to == std::ssize(ids));
    CHECK_THAT(
        error_text([&] { find_text(*tokenizer, ids, "fox", "generation.pin"); }, ErrorKind::usage),
        Contains("more than once") && Contains("'fox'"));
    CHECK_THAT(
        error_text([&] { find_text(*tokenizer, ids, "wolf", "generation.pin"); }, ErrorKind::usage),
        Contains("not in the prompt"));
    CHECK_THROWS_AS(find_text(*tokenizer, ids, "", "generation.pin"), Error);
}

TEST_CASE("pinned tokens of a prompt stay during generation, and a refused prompt leaves no pins") {
    const std::vector<std::string> overrides = {
        "model.path=" + tiny_model, "backend.plugin=reference", "policy.plugin=sliding_window",
        "policy.budget.tokens=24",  "policy.budget.slack=0",    "sampling.temperature=0"};
    Pipeline pipeline(pipeline::config_from_overrides(overrides));
    Session session(pipeline);
    const std::vector<int32_t> ids = pipeline.tokenizer()->encode(
        "Once upon a time the golden ball was lost in the deep well of the old castle.");
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = 40;
    options.ignore_end = true;
    options.pin = {"golden ball", "dragon"};
    CHECK_THROWS_AS(generate(session, ids, options), Error);
    CHECK(session.cache().pinned_tokens() == 0);
    CHECK(session.tokens() == 0);
    options.pin = {"golden ball"};
    generate(session, ids, options);
    const TokenRun run = find_text(*pipeline.tokenizer(), ids, "golden ball", "");
    const auto kept = session.cache().cache().positions(0, 0);
    CHECK(session.cache().evictions() > 0);
    for (int32_t t = run.from; t < run.to; ++t)
        CHECK(std::find(kept.begin(), kept.end(), t) != kept.end());
    CHECK(std::find(kept.begin(), kept.end(), run.from - 1) == kept.end());
}
