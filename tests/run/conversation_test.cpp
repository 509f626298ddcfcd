// Tests of chats on models/tiny: which tokens a turn reads, what remains after Ctrl-C, a full cache
// or a saved file, and the protection of the system prompt.
#include "base/error.hpp"
#include "run/conversation.hpp"
#include "run/session_file.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

using namespace keel;

namespace {

pipeline::PipelineConfig chat_tiny(std::initializer_list<std::string> more = {}) {
    std::vector<std::string> sets{std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                                  "backend.plugin=cpu", "sampling.temperature=0"};
    sets.insert(sets.end(), more);
    return pipeline::config_from_overrides(sets);
}

// A pipeline with a chat.
struct Talk {
    explicit Talk(std::initializer_list<std::string> more = {},
                  std::optional<std::string> system = std::nullopt)
        : Talk(*ChatTemplate::by_name("zephyr"), more, std::move(system)) {}
    Talk(ChatTemplate form, std::initializer_list<std::string> more,
         std::optional<std::string> system = std::nullopt)
        : pipeline(chat_tiny(more), options()), session(pipeline),
          chat(session, std::move(form), std::move(system)) {}
    static PipelineOptions options() {
        PipelineOptions o;
        o.has_system_prompt = true;
        return o;
    }
    GenerateResult ask(std::string_view text, int64_t tokens = 12, bool ignore_end = false) {
        GenerateOptions o = generate_options(pipeline.config());
        o.max_tokens = tokens;
        o.ignore_end = ignore_end;
        return chat.ask(text, o);
    }
    // Returns the tokens that the model should have read: the whole conversation in one piece.
    std::vector<int32_t> whole(std::string_view next) const {
        std::vector<ChatMessage> all(chat.turns().begin(), chat.turns().end());
        if (chat.system()) all.insert(all.begin(), {ChatRole::system, *chat.system()});
        all.push_back({ChatRole::user, std::string(next)});
        return chat.chat().encode(*pipeline.tokenizer(),
                                  chat.chat().prompt(*pipeline.tokenizer(), all), false);
    }

    Pipeline pipeline;
    Session session;
    Conversation chat;
};

template <typename Action> std::string refusal_of(Action &&action) {
    try {
        action();
    } catch (const Error &error) {
        return error.what();
    }
    return {};
}

const std::string rule = "You tell tales of kings and wolves, and never of anything else.";

} // namespace

TEST_CASE("a turn prefills only new tokens, and the model sees the whole conversation") {
    for (const bool has_system : {false, true}) {
        Talk talk({}, has_system ? std::optional(rule) : std::nullopt);
        const auto first = talk.whole("Who was the king?");
        const GenerateResult a = talk.ask("Who was the king?");
        CHECK(std::equal(first.begin(), first.end(), talk.session.history().begin()));
        CHECK(talk.session.stats().prefill_tokens == first.size());
        const auto before = talk.session.stats().prefill_tokens;
        const auto second = talk.whole("And then?");
        talk.ask("And then?");
        // The tokens of the answer may differ from the tokens that the model generated. The text is
        // the same.
        const Tokenizer &t = *talk.pipeline.tokenizer();
        const std::string seen = t.decode(talk.session.history(), false);
        CHECK(seen.starts_with(t.decode(second, false)));
        CHECK(talk.session.stats().prefill_tokens - before < second.size() - first.size());
        REQUIRE(talk.chat.turns().size() == 4);
        CHECK(talk.chat.turns()[1].content == a.text);
        talk.chat.reset();
        CHECK(talk.ask("Who was the king?").text == a.text);
    }
}

TEST_CASE("a saved chat continues as if it had not been saved") {
    const test::TempFolder folder;
    for (const char *temperature : {"sampling.temperature=0", "sampling.temperature=0.8"}) {
        Talk a({temperature}, rule), b({temperature}), c({temperature}, rule);
        a.ask("Who was the king?");
        a.chat.save(folder / "chat");
        const std::string next = a.ask("And then?").text;
        b.chat.load(folder / "chat");
        CHECK(b.chat.system() == rule);
        CHECK(b.chat.turns().size() == 2);
        CHECK(b.ask("And then?").text == next);
        CHECK(b.session.stats().prefill_tokens < 30); // nothing was read again
        CHECK(refusal_of([&] { c.chat.load(folder / "nothing"); }) != "");
    }
    Talk other;
    other.chat.save(folder / "empty");
    other.chat.load(folder / "empty");
    CHECK(other.chat.turns().empty());
    Conversation llama(other.session, *ChatTemplate::by_name("llama3"), {});
    CHECK_THAT(refusal_of([&] { llama.load(folder / "chat"); }),
               Catch::Contains("template zephyr"));
}

TEST_CASE("an answer that was interrupted stays, and a question that was not read is removed") {
    Talk talk({}, rule);
    talk.ask("Who was the king?");
    const auto history = std::vector(talk.session.history().begin(), talk.session.history().end());
    const auto pending = talk.session.pending();
    talk.pipeline.host().request_cancel();
    const GenerateResult none = talk.ask("And then?");
    talk.pipeline.host().clear_cancel();
    CHECK(none.reason == StopReason::cancelled);
    CHECK(none.ids.empty());
    CHECK(std::vector(talk.session.history().begin(), talk.session.history().end()) == history);
    CHECK(talk.session.pending() == pending);
    CHECK(talk.chat.turns().size() == 2);

    GenerateOptions options = generate_options(talk.pipeline.config());
    options.on_text = [](std::string_view) { throw 7; };
    CHECK_THROWS_AS(talk.chat.ask("And then?", options), int);
    CHECK(std::vector(talk.session.history().begin(), talk.session.history().end()) == history);
    CHECK(talk.session.pending() == pending);
    options.on_text = [&](std::string_view) { talk.pipeline.host().request_cancel(); };
    const GenerateResult cut = talk.chat.ask("And then?", options);
    talk.pipeline.host().clear_cancel();
    CHECK(cut.reason == StopReason::cancelled);
    REQUIRE(talk.chat.turns().size() == 4);
    CHECK(talk.chat.turns()[3].content == cut.text);
    // The next turn ends the answer as the template requires.
    talk.ask("Go on.");
    CHECK_THAT(talk.pipeline.tokenizer()->decode(talk.session.history(), false),
               Catch::Contains(cut.text + "</s>") || Catch::Contains("Go on."));
}

TEST_CASE("a removed question uses no random numbers, even if its cache is read again") {
    const test::TempFolder folder;
    Talk talk(
        {"sampling.temperature=0.8", "policy.plugin=sliding_window", "policy.budget.tokens=64"});
    talk.ask("Who was the king?");
    talk.chat.save(folder / "before");
    GenerateOptions options = generate_options(talk.pipeline.config());
    options.max_tokens = 300;
    options.ignore_end = true;
    options.on_text = [&](std::string_view) {
        if (talk.session.tokens() > 250) throw 7; // the question is evicted by then
    };
    CHECK_THROWS_AS(talk.chat.ask("And then?", options), int);
    CHECK(talk.session.tokens() == 0); // evicted tokens cannot be restored
    CHECK(talk.chat.turns().size() == 2);
    talk.chat.save(folder / "after");
    Session session(talk.pipeline);
    const auto random = load_session(session, folder / "before").random;
    REQUIRE(random);
    CHECK(load_session(session, folder / "after").random == random);
}

TEST_CASE("text that a stop string cut off is not in the cache either") {
    Talk whole, cut;
    const std::string text = whole.ask("Who was the king?", 16).text;
    REQUIRE(text.size() > 20);
    const std::string word = text.substr(text.size() / 2, 4);
    GenerateOptions options = generate_options(cut.pipeline.config());
    options.stop = {word};
    const GenerateResult result = cut.chat.ask("Who was the king?", options);
    CHECK(result.reason == StopReason::stop_string);
    CHECK(result.text == text.substr(0, text.find(word)));
    CHECK(cut.chat.turns()[1].content == result.text);
    CHECK_FALSE(cut.session.pending());
    const std::string read = cut.pipeline.tokenizer()->decode(cut.session.history(), false);
    CHECK(read.find(result.text + word) == std::string::npos);
    CHECK_FALSE(cut.ask("And then?").ids.empty());
}

TEST_CASE(
    "a text that does not fit leaves the chat unchanged and names the key, and reset makes room") {
    Talk talk({"model.context=64"});
    talk.ask("Hi", 4);
    const int64_t tokens = talk.session.tokens();
    std::string long_question;
    for (int i = 0; i < 60; ++i) long_question += "and then ";
    CHECK_THAT(refusal_of([&] { talk.ask(long_question); }), Catch::Contains("model.context = 64"));
    CHECK(talk.session.tokens() == tokens);
    CHECK(talk.chat.turns().size() == 2);
    CHECK(talk.ask("Go on", 100, true).reason == StopReason::cache_full);
    CHECK_THAT(refusal_of([&] { talk.ask("More"); }), Catch::Contains("model.context"));
    talk.chat.reset();
    CHECK_FALSE(talk.ask("More", 4).ids.empty());
}

TEST_CASE("the system prompt is never evicted, and other tokens are") {
    for (const std::string positions : {"absolute", "rerotated"}) {
        INFO(positions);
        Talk talk({"policy.plugin=sliding_window", "policy.budget.tokens=96",
                   "policy.positions=" + positions},
                  rule);
        const auto prefix = talk.session.cache().protected_prefix();
        CHECK(prefix > 10);
        for (int i = 0; i < 8; ++i) talk.ask("And then, what did the wolf say to the king?", 24);
        const KvCache &cache = talk.session.cache().cache();
        CHECK(talk.session.stats().evictions > 0);
        REQUIRE(cache.max_length() < 96 + 60);
        const auto held = cache.positions(0, 0);
        if (positions == "absolute") {
            for (int64_t i = 0; i < prefix; ++i) CHECK(held[static_cast<size_t>(i)] == i);
            CHECK(held[static_cast<size_t>(prefix)] > prefix);
        }
        // The conversation is also saved with this state.
        const test::TempFolder folder;
        talk.chat.save(folder / "chat");
        const std::string next = talk.ask("And then?").text;
        talk.chat.load(folder / "chat");
        CHECK(talk.session.cache().protected_prefix() == prefix);
        CHECK(talk.ask("And then?").text == next);
        talk.chat.reset();
        CHECK(talk.session.cache().protected_prefix() == prefix);
    }
    Talk off({"policy.plugin=sliding_window", "policy.budget.tokens=96",
              "policy.protect.system_prompt=false"},
             rule);
    CHECK(off.session.cache().protected_prefix() == 4); // the default of policy.protect.prefix
    CHECK_THAT(refusal_of([&] {
                   Talk small({"policy.plugin=sliding_window", "policy.budget.tokens=16"}, rule);
               }),
               Catch::Contains("policy.budget.tokens") && Catch::Contains("the system prompt"));
}

TEST_CASE("a conversation that another pipeline takes over is read with the next question") {
    Talk a({}, rule), b({}, rule);
    a.ask("Who was the king?");
    b.chat.take_over({a.chat.turns().begin(), a.chat.turns().end()});
    CHECK(b.session.tokens() == 0);
    const auto whole = b.whole("And then?");
    b.ask("And then?");
    CHECK(b.session.stats().prefill_tokens == whole.size());
    CHECK(std::equal(whole.begin(), whole.end(), b.session.history().begin()));
    CHECK(b.chat.turns().size() == 4);
}

namespace {

// Zephyr's turns as a Jinja template. `answer`: the expression that writes an earlier answer.
ChatTemplate jinja_of(const std::string &answer) {
    const std::string text =
        "{% for m in messages %}{{ '<|' + m.role + '|>\n' }}"
        "{% if m.role == 'assistant' %}{{ " +
        answer +
        " }}{% else %}{{ m.content }}{% endif %}{{ eos_token + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}";
    return FoundChatTemplate{text, {}, "t.jinja"}.open();
}

} // namespace

TEST_CASE("with a Jinja template, a turn also reads only the new tokens") {
    Talk named({}, rule), jinja(jinja_of("m.content"), {}, rule);
    for (const char *question : {"Who was the king?", "And then?", "Why?"})
        CHECK(named.ask(question).text == jinja.ask(question).text);
    CHECK(std::ranges::equal(named.session.history(), jinja.session.history()));
    CHECK(named.session.stats().prefill_tokens == jinja.session.stats().prefill_tokens);
    const test::TempFolder folder;
    jinja.chat.save(folder / "chat");
    jinja.chat.load(folder / "chat");
    CHECK_FALSE(jinja.ask("Go on.").ids.empty());
    CHECK(jinja.session.stats().prefill_tokens < 40); // nothing was read again
    CHECK_THAT(refusal_of([&] { named.chat.load(folder / "chat"); }),
               Catch::Contains("template jinja-"));
}

TEST_CASE("if a Jinja template changes an earlier answer, the session reads the changed part") {
    Talk talk(jinja_of("'...' + m.content[-9:]"), {}, rule);
    talk.ask("Who was the king?", 30, true);
    const auto first = talk.session.stats().prefill_tokens;
    const auto whole = talk.whole("And then?");
    talk.ask("And then?", 8, true);
    const auto history = talk.session.history();
    REQUIRE(history.size() >= whole.size());
    CHECK(std::equal(whole.begin(), whole.end(), history.begin()));
    // the system prompt and the first question are not read again
    CHECK(talk.session.stats().prefill_tokens - first < whole.size() - 20);
    // a question that does not fit is removed, and the chat goes on with the whole conversation
    Talk small(jinja_of("'...' + m.content[-9:]"), {"model.context=128"});
    small.ask("Who was the king?", 30, true);
    std::string long_question;
    for (int i = 0; i < 200; ++i) long_question += "and then ";
    CHECK_THAT(refusal_of([&] { small.ask(long_question); }),
               Catch::Contains("model.context = 128"));
    CHECK(small.chat.turns().size() == 2);
    const auto again = small.whole("Why?");
    small.ask("Why?", 8, true);
    CHECK(std::equal(again.begin(), again.end(), small.session.history().begin()));
    // evicted tokens cannot be removed, so the session reads everything again
    Talk evicting(jinja_of("'...' + m.content[-9:]"),
                  {"policy.plugin=sliding_window", "policy.budget.tokens=64"}, rule);
    evicting.ask("Who was the king?", 120, true);
    const auto all = evicting.whole("Why?");
    evicting.ask("Why?", 8, true);
    CHECK(std::equal(all.begin(), all.end(), evicting.session.history().begin()));
}

TEST_CASE("a model without a template, or an unknown template, is refused with what to do") {
    const std::string model = std::string(KEEL_SOURCE_DIR) + "/models/tiny";
    CHECK_THAT(refusal_of([&] { choose_chat_template(model, ""); }),
               Catch::Contains("names no chat template") && Catch::Contains("--template") &&
                   Catch::Contains("keel run"));
    CHECK_THAT(refusal_of([&] { choose_chat_template(model, "chatm"); }),
               Catch::Contains("did you mean 'chatml'"));
    CHECK(choose_chat_template(model, "chatml").name() == "chatml");
    const test::TempFolder folder;
    folder.write("chat_template.jinja", "{{ 1 | nope }}\n{% nope %}");
    CHECK_THAT(refusal_of([&] { choose_chat_template(folder.path(), ""); }),
               Catch::Contains("chat_template.jinja:2: unknown or misplaced statement 'nope'") &&
                   Catch::Contains("--template NAME: llama2"));
}
