#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <keel/keel.hpp>

using namespace keel::api;

namespace {

const std::string tiny = std::string(KEEL_SOURCE_DIR) + "/models/tiny";

template <typename Action>
ErrorKind kind_of(Action &&action) {
    try {
        action();
    } catch (const Error &error) {
        CHECK_FALSE(std::string(error.what()).empty());
        return error.kind();
    }
    FAIL("expected an error");
    return ErrorKind::internal;
}

} // namespace

TEST_CASE("text comes in pieces and as a whole, and goes on where it was") {
    Pipeline pipeline(tiny, {"sampling.seed=3"});
    CHECK(pipeline.defaults().seed == 3);
    CHECK(pipeline.context() > 100);
    Generation options = pipeline.defaults();
    options.max_tokens = 20;
    options.ignore_end = true;
    options.logprobs = 1;
    std::string pieces;
    options.on_text = [&](std::string_view text) { pieces += text; };
    Session whole(pipeline), parts(pipeline);
    const Result all = whole.generate("Once upon a time", options);
    CHECK(pieces == all.text);
    CHECK(all.ids.size() == 20);
    CHECK(all.logprobs.size() == 20);
    CHECK(all.stop == Stop::max_tokens);
    options.max_tokens = 12;
    std::vector<int32_t> ids = parts.generate("Once upon a time", options).ids;
    const keel::test::TempFolder folder;
    parts.save(folder / "s");
    parts.reset();
    CHECK(parts.history().empty());
    parts.load(folder / "s");
    options.max_tokens = 8;
    const std::vector<int32_t> more = parts.generate("", options).ids;
    ids.insert(ids.end(), more.begin(), more.end());
    CHECK(ids == all.ids);
    CHECK(parts.history() == whole.history());
    CHECK(whole.stats().decode_tokens == 19);
}

TEST_CASE("tokens can be read one by one") {
    Pipeline pipeline(tiny, {"sampling.temperature=0"});
    const std::vector<int32_t> prompt = pipeline.encode("Once upon a time");
    CHECK(pipeline.decode(prompt) == "Once upon a time");
    Session session(pipeline), other(pipeline);
    const float *logits = session.read(prompt);
    int32_t best = 0;
    for (int32_t i = 0; i < pipeline.vocab_size(); ++i)
        best = logits[i] > logits[best] ? i : best;
    Generation one = pipeline.defaults();
    one.max_tokens = 1;
    CHECK(other.generate(prompt, one).ids == std::vector<int32_t>{best});
    CHECK(kind_of([&] { session.read({-1}); }) == ErrorKind::usage);
    CHECK(kind_of([&] { session.read({1 << 30}); }) == ErrorKind::usage);
    CHECK(kind_of([&] { session.read({}); }) == ErrorKind::usage);
    CHECK(session.history() == prompt);
}

TEST_CASE("a chat remembers, and cancels") {
    Pipeline pipeline(tiny, {"sampling.temperature=0", "generation.max_tokens=8"});
    Chat chat(pipeline, "You tell tales.", "zephyr");
    const std::string first = chat.ask("Who was the king?").text;
    chat.ask("And then?");
    chat.reset();
    CHECK(chat.ask("Who was the king?").text == first);
    Generation options = pipeline.defaults();
    options.max_tokens = 1000;
    options.on_text = [&](std::string_view) { pipeline.cancel(); };
    CHECK(chat.ask("Go on", options).stop == Stop::cancelled);
    pipeline.resume();
    options.on_text = [](std::string_view) { throw 7; }; // a caller's own
    CHECK_THROWS_AS(chat.ask("Go on", options), int);
    CHECK(kind_of([&] { const Chat none(pipeline); }) == ErrorKind::usage);
}

TEST_CASE("errors have a kind, and objects that were moved from refuse") {
    CHECK(kind_of([] { const Pipeline none("/no/such/model"); }) == ErrorKind::input);
    CHECK(kind_of([] { const Pipeline none(tiny, {"kv.dtype=f17"}); }) == ErrorKind::input);
    CHECK(kind_of([] { const Pipeline none(tiny, {"policy.plugin=nothing_like_it"}); }) == ErrorKind::plugin);
    Pipeline small(tiny, {"model.context=8"});
    Session session(small);
    CHECK(kind_of([&] { session.generate("Once upon a time there was a king in a land"); }) ==
          ErrorKind::resource);
    CHECK(kind_of([&] { session.load(tiny + "/config.json"); }) == ErrorKind::input);
    Pipeline moved(std::move(small));
    CHECK(moved.context() == 8);
    CHECK(kind_of([&] { small.encode("a"); }) == ErrorKind::usage); // NOLINT(bugprone-use-after-move)
    CHECK(kind_of([&] { const Session none(small); }) == ErrorKind::usage);
    { const Pipeline gone(std::move(moved)); }
    session.reset(); // lives on what it was made of
    CHECK(session.generate("Once").ids.size() > 1);
    CHECK(std::string(version()).find('.') != std::string::npos);
}
