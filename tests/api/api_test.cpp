#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <keel/keel.hpp>

using namespace keel::api;

namespace {

const std::string tiny = std::string(KEEL_SOURCE_DIR) + "/models/tiny";

template <typename Action> ErrorKind kind_of(Action &&action) {
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

TEST_CASE("if a pipeline does not set sampling and generation, it has the defaults of Generation") {
    const Generation of_pipeline = Pipeline(tiny).defaults(), of_struct;
    CHECK(of_pipeline.max_tokens == of_struct.max_tokens);
    CHECK(of_pipeline.temperature == of_struct.temperature);
    CHECK(of_pipeline.top_k == of_struct.top_k);
    CHECK(of_pipeline.top_p == of_struct.top_p);
    CHECK(of_pipeline.min_p == of_struct.min_p);
    CHECK(of_pipeline.repetition_penalty == of_struct.repetition_penalty);
    CHECK(of_pipeline.repetition_window == of_struct.repetition_window);
}

TEST_CASE("text comes in pieces and as a whole, and a later call continues it") {
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
    const Stats stats = whole.stats();
    CHECK(stats.decode_tokens == 19);
    CHECK(stats.kv_bytes > 0);
    CHECK(stats.held_peak_bytes == stats.kv_peak_bytes); // the policy holds no other memory
    CHECK(stats.policy_bytes + stats.policy_peak_bytes + stats.freed_bytes == 0);
}

TEST_CASE("tokens can be read one by one") {
    Pipeline pipeline(tiny, {"sampling.temperature=0"});
    const std::vector<int32_t> prompt = pipeline.encode("Once upon a time");
    CHECK(pipeline.decode(prompt) == "Once upon a time");
    Session session(pipeline), other(pipeline);
    const float *logits = session.read(prompt);
    int32_t best = 0;
    for (int32_t i = 0; i < pipeline.vocab_size(); ++i) best = logits[i] > logits[best] ? i : best;
    Generation one = pipeline.defaults();
    one.max_tokens = 1;
    CHECK(other.generate(prompt, one).ids == std::vector<int32_t>{best});
    CHECK(kind_of([&] { session.read({-1}); }) == ErrorKind::usage);
    CHECK(kind_of([&] { session.read({1 << 30}); }) == ErrorKind::usage);
    CHECK(kind_of([&] { session.read({}); }) == ErrorKind::usage);
    CHECK(session.history() == prompt);
    // After cancel(), there are no old logits, and nothing was read.
    pipeline.cancel();
    CHECK(kind_of([&] { session.read(prompt); }) == ErrorKind::usage);
    pipeline.resume();
    CHECK(session.history() == prompt);
    CHECK(session.read({best})[0] != 0);
}

TEST_CASE("invalid options and ids are refused, and the message uses the API's names") {
    Pipeline pipeline(tiny, {"sampling.temperature=0"});
    Session session(pipeline);
    const auto message = [](auto &&action) {
        try {
            action();
        } catch (const Error &error) {
            CHECK(error.kind() == ErrorKind::usage);
            CHECK(std::string(error.what()).find("--") ==
                  // the API has no command-line options, so messages must not name any
                  std::string::npos);
            return std::string(error.what());
        }
        return std::string("no error");
    };
    struct Case {
        const char *expected;
        void (*change)(Generation &);
    };
    for (const Case &one : std::initializer_list<Case>{
             {"Generation::max_tokens: expected 1 or more, found 0",
              [](Generation &g) { g.max_tokens = 0; }},
             {"Generation::max_tokens: expected 1 or more, found -3",
              [](Generation &g) { g.max_tokens = -3; }},
             {"Generation::logprobs: expected 0 or more, found -1",
              [](Generation &g) { g.logprobs = -1; }},
             {"Generation::temperature: expected 0 to ", [](Generation &g) { g.temperature = -1; }},
             {"Generation::temperature: expected 0 to ",
              [](Generation &g) { g.temperature = NAN; }},
             {"Generation::top_k: expected 0 or more", [](Generation &g) { g.top_k = INT64_MIN; }},
             {"Generation::top_p: expected 0 to 1, found 1.5",
              [](Generation &g) { g.top_p = 1.5; }},
             {"Generation::min_p: expected 0 to 1", [](Generation &g) { g.min_p = 2; }},
             {"Generation::repetition_penalty: ", [](Generation &g) { g.repetition_penalty = 0; }},
             {"Generation::repetition_window: ", [](Generation &g) { g.repetition_window = -1; }},
             {"Generation::stop: ", [](Generation &g) {
                  g.stop = {"a", ""};
              }}}) {
        Generation options = pipeline.defaults();
        one.change(options);
        CHECK_THAT(message([&] { session.generate("Once", options); }),
                   Catch::Contains(one.expected));
        Chat chat(pipeline, std::nullopt, "chatml");
        CHECK_THAT(message([&] { chat.ask("Who?", options); }), Catch::Contains(one.expected));
    }
    CHECK(session.history().empty());
    const auto largest = static_cast<int32_t>(pipeline.vocab_size());
    const std::string range = "expected a token from 0 to " + std::to_string(largest - 1);
    CHECK_THAT(message([&] {
                   pipeline.decode({1, largest});
               }),
               Catch::Contains("Pipeline::decode: ids[1]: " + range + ", found " +
                               std::to_string(largest)));
    CHECK_THAT(message([&] { pipeline.decode({-1}); }),
               Catch::Contains("ids[0]: " + range + ", found -1"));
    CHECK_THAT(message([&] {
                   session.read({1, 2, -7});
               }),
               Catch::Contains("Session::read: ids[2]: " + range));
    CHECK_THAT(
        message([&] { session.generate(std::vector<int32_t>{largest}, pipeline.defaults()); }),
        Catch::Contains("Session::generate: ids[0]: " + range));
    CHECK_THAT(message([&] { session.read({}); }),
               Catch::Contains("Session::read: expected ids, found none"));
    Generation one = pipeline.defaults();
    one.max_tokens = 1;
    session.generate("Once", one); // one token is pending now, but read() still has no ids
    CHECK_THAT(message([&] { session.read({}); }),
               Catch::Contains("Session::read: expected ids, found none"));
    CHECK_THAT(message([&] { const Chat none(pipeline); }),
               Catch::Contains("Chat's argument chat_template"));
    CHECK(pipeline.decode({}).empty());
}

TEST_CASE("special tokens that are written in a text become tokens only if the caller wants it") {
    Pipeline pipeline(tiny, {"sampling.temperature=0"});
    const std::vector<int32_t> mark = pipeline.encode("<|end_of_text|>", false);
    REQUIRE(mark.size() == 1);
    const std::vector<int32_t> text = pipeline.encode("<|end_of_text|>", false, false);
    CHECK(text.size() > 1);
    CHECK(pipeline.decode(text) == "<|end_of_text|>");
    Session session(pipeline);
    Generation one = pipeline.defaults();
    one.max_tokens = 1;
    session.generate("a<|end_of_text|>", one, false);
    for (const int32_t id : session.history()) CHECK(id != mark[0]);
}

TEST_CASE("a program receives warnings after it sets a log callback") {
    const std::vector<std::string> idle = {
        // the policy `none` evicts nothing, so the budget has no effect
        "policy.budget.tokens=64"};
    std::vector<std::string> heard;
    set_log([&](LogLevel level, std::string_view message) {
        if (level == LogLevel::warning) heard.emplace_back(message);
        throw 7; // an exception of the log callback does not stop the call
    });
    { const Pipeline pipeline(tiny, idle); }
    REQUIRE(heard.size() == 1);
    CHECK_THAT(heard[0], Catch::Contains("has no effect"));
    set_log({});
    { const Pipeline pipeline(tiny, idle); }
    CHECK(heard.size() == 1);
}

TEST_CASE("a chat remembers earlier turns and can be cancelled") {
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
    options.on_text = [](std::string_view) { throw 7; }; // an exception of the user's own type
    CHECK_THROWS_AS(chat.ask("Go on", options), int);
    options.on_text = [](std::string_view) { throw std::bad_alloc(); };
    CHECK_THROWS_AS(chat.ask("Go on", options), std::bad_alloc);
    options.on_text = [](std::string_view) { throw std::out_of_range("mine"); };
    CHECK_THROWS_AS(chat.ask("Go on", options), std::out_of_range);
    CHECK(kind_of([&] { const Chat none(pipeline); }) == ErrorKind::usage);
}

TEST_CASE("errors have a kind, and objects that were moved from throw") {
    CHECK(kind_of([] { const Pipeline none("/no/such/model"); }) == ErrorKind::input);
    CHECK(kind_of([] { const Pipeline none(tiny, {"kv.dtype=f17"}); }) == ErrorKind::input);
    CHECK(kind_of([] { const Pipeline none(tiny, {"policy.plugin=nothing_like_it"}); }) ==
          ErrorKind::plugin);
    Pipeline small(tiny, {"model.context=8"});
    Session session(small);
    CHECK(kind_of([&] { session.generate("Once upon a time there was a king in a land"); }) ==
          ErrorKind::resource);
    CHECK(kind_of([&] { session.load(tiny + "/config.json"); }) == ErrorKind::input);
    Pipeline moved(std::move(small));
    CHECK(moved.context() == 8);
    CHECK(kind_of([&] { small.encode("a"); }) ==
          ErrorKind::usage); // NOLINT(bugprone-use-after-move)
    CHECK(kind_of([&] { const Session none(small); }) == ErrorKind::usage);
    { const Pipeline gone(std::move(moved)); }
    session.reset(); // the session keeps its pipeline alive
    CHECK(session.generate("Once").ids.size() > 1);
    CHECK(std::string(version()).find('.') != std::string::npos);
}
