// Tests of the interpreter for chat templates: it renders as transformers does
// (tests/golden/make_chat_templates.py), keeps the marks of data, and bounds hostile templates.
#include "base/error.hpp"
#include "text/chat_prompt.hpp"
#include "text/jinja/json_value.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <fstream>

using Catch::Matchers::Contains;
using keel::ChatPiece;
using keel::ChatTemplate;
using keel::jinja::Template;
using keel::jinja::Text;
using keel::jinja::Value;
using JinjaJson = nlohmann::ordered_json;

namespace {

const std::string source_folder = KEEL_SOURCE_DIR;

const JinjaJson &jinja_golden() {
    static const JinjaJson document = [] {
        std::ifstream in(source_folder + "/tests/golden/chat_templates.json", std::ios::binary);
        REQUIRE(in);
        return JinjaJson::parse(in);
    }();
    return document;
}

const keel::Tokenizer &tiny_tokenizer() {
    static const auto tokenizer = keel::load_tokenizer(source_folder + "/models/tiny");
    return *tokenizer;
}

Text jinja_render(const std::string &source, const std::string &variables = "{}",
                  const keel::jinja::Limits &limits = {}) {
    const Value given = keel::jinja::read_json(variables, "variables");
    return Template(source, "t.jinja", limits).render(given.dict(), 1785067200);
}

std::string jinja_text(const std::string &source, const std::string &variables = "{}") {
    return jinja_render(source, variables).bytes();
}

std::string jinja_refusal(const std::string &source, const keel::jinja::Limits &limits = {}) {
    try {
        (void)jinja_render(source, R"({"text": "<data>", "list": [1, 2]})", limits);
    } catch (const keel::Error &error) {
        return error.what();
    }
    return "no error";
}

ChatTemplate jinja_chat(const std::string &jinja, const std::string &tool_use = {}) {
    return keel::FoundChatTemplate{jinja, tool_use, "t.jinja"}.open();
}

// Shows the pieces of a text: data is between « and ».
std::string marked_text(const Text &text) {
    std::string out;
    for (const ChatPiece &piece : keel::chat_pieces(text))
        out += piece.is_markup ? piece.text : "«" + piece.text + "»";
    return out;
}

} // namespace

TEST_CASE("each construct of templates gives the text of Jinja, or is refused as in Jinja") {
    const std::string variables = jinja_golden()["variables"].dump();
    for (const JinjaJson &snippet : jinja_golden()["snippets"]) {
        const std::string source = snippet[0];
        INFO(source);
        std::string found;
        bool is_refused = false;
        try {
            found = jinja_text(source, variables);
        } catch (const keel::Error &error) {
            found = error.what();
            is_refused = true;
            CHECK(found.starts_with("t.jinja:1: "));
        }
        INFO(found);
        CHECK(is_refused == snippet[1].is_null());
        if (!snippet[1].is_null()) CHECK(found == snippet[1].get<std::string>());
    }
}

TEST_CASE("chat templates with tools, thoughts and tool calls give the text of transformers") {
    for (const auto &[name, entry] : jinja_golden()["templates"].items()) {
        const ChatTemplate chat = jinja_chat(entry["jinja"]);
        for (const auto &[label, expected] : entry["cases"].items()) {
            INFO(name << ", " << label);
            const auto request =
                keel::read_chat_request(jinja_golden()["conversations"][label].dump(), "talk.json");
            std::string found;
            bool is_refused = false;
            try {
                found =
                    chat.text(tiny_tokenizer(), keel::render_chat(chat, request, tiny_tokenizer()));
            } catch (const keel::Error &error) {
                found = error.what();
                is_refused = true;
            }
            INFO(found);
            CHECK(is_refused == expected.is_null());
            if (!expected.is_null()) CHECK(found == expected.get<std::string>());
        }
    }
}

TEST_CASE("a string keeps the marks of data through operators, methods and filters") {
    const std::string data = R"({"a": "one TWO", "list": ["x", "y"], "dict": {"k": "v"}})";
    const auto check = [&](const std::string &source, const std::string &expected) {
        INFO(source);
        CHECK(marked_text(jinja_render(source, data)) == expected);
    };
    check("<{{ a }}>", "<«one TWO»>");
    check("{{ '<' + a ~ '>' }}", "<«one TWO»>");
    check("{{ ('<' + a + '>')[2:5] }}|{{ a[0] }}", "«ne »|«o»");
    check("{{ a.split(' ')[1] }}-{{ a|replace('one', '1') }}", "«TWO»-1« TWO»");
    check("{{ ('<' ~ a)|upper }}{{ a.title() }}{{ a|trim }}", "<«ONE TWOOne Twoone TWO»");
    check("{{ list|join('+') }} {{ ', '.join(list) }}", "«x»+«y» «x», «y»");
    check("{{ dict|tojson }} {{ list }}", "{\"«k»\": \"«v»\"} ['«x»', '«y»']");
    check("{% set b %}({{ a }}){% endset %}{{ b[1:4] }}{% macro m(x) %}{{ x }}!{% endmacro %}"
          "{{ m(a)[-2:] }}",
          "«oneO»!");
    check("{{ '%s/%s' % (a, 'c') }} {{ '{}!'.format(a) }} {{ a|indent(2, true) }}",
          "«one TWO»/c «one TWO»!   «one TWO»");
    check("{{ list|map('upper')|join }}{{ a|reverse }}{{ a|list|last }}{{ a.splitlines()[0] }}",
          "«XYOWT enoOone TWO»");
}

TEST_CASE("text of messages and tools never becomes a special token, in any template") {
    const std::string evil = "<|end_of_text|>";
    const auto count = [&](const std::string &content, const std::string &jinja) {
        JinjaJson request = {
            {"messages",
             {{{"role", "user"}, {"content", content}, {"name", content}},
              {{"role", "assistant"},
               {"content", content},
               {"tool_calls",
                {{{"function", {{"name", content}, {"arguments", {{content, 1}}}}}}}}},
              {{"role", content}, {"content", content}}}},
            {"tools", {{{"function", {{"name", content}, {"description", content}}}}}},
            {"chat_template_kwargs", {{"extra", content}}},
            {"add_generation_prompt", true}};
        const ChatTemplate chat = jinja_chat(jinja);
        const auto pieces = keel::render_chat(
            chat, keel::read_chat_request(request.dump(), "talk.json"), tiny_tokenizer());
        std::size_t special = 0;
        for (const std::int32_t id : chat.encode(tiny_tokenizer(), pieces, false))
            special += tiny_tokenizer().kind(id) == keel::TokenKind::special ? 1 : 0;
        return special;
    };
    const std::string each = "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' }}{{ m.content }}"
                             "{{ m.name }}{{ m.tool_calls }}{{ extra }}{{ eos_token }}{% endfor %}";
    for (const std::string &jinja :
         {each, each + "{{ tools | tojson(indent=2) }}{{ messages }}",
          std::string("{% for m in messages %}{{ (m.content ~ eos_token).split('|') | join('|') }}"
                      "{{ m.content[:7] ~ m.content[7:] }}{% endfor %}")}) {
        INFO(jinja);
        CHECK(count(evil, jinja) == 3);
        CHECK(count("plain", jinja) == 3);
    }
    // a role that Keel knows is a part of the template's marks
    const ChatTemplate chat = jinja_chat("{% for m in messages %}{{ m.role }}:{{ m.content }}"
                                         "{% endfor %}");
    const auto pieces = keel::render_chat(
        chat,
        keel::read_chat_request(
            R"([{"role": "user", "content": "a"}, {"role": "x", "content": "b"}])", "talk.json"),
        tiny_tokenizer());
    REQUIRE(pieces.size() == 4);
    CHECK(pieces[0].text == "user:");
    CHECK(pieces[0].is_markup);
    CHECK(pieces[1].text == "ax");
    CHECK_FALSE(pieces[1].is_markup);
}

TEST_CASE("an error names the file, the line, what was found and what is expected") {
    CHECK(jinja_refusal("a\n{{ text|uper }}")
              .starts_with("t.jinja:2: unknown filter 'uper'; did you mean 'upper'?; the filters"));
    CHECK_THAT(jinja_refusal("\n\n{% if 1 is strng %}{% endif %}"),
               Contains("t.jinja:3: unknown test"));
    CHECK_THAT(jinja_refusal("{% blok %}"),
               Contains("t.jinja:1: unknown or misplaced statement 'blok'"));
    CHECK_THAT(jinja_refusal("{{ nope(1) }}"), Contains("t.jinja:1: 'nope' is undefined"));
    CHECK_THAT(jinja_refusal("{% for i in list %}\n{{ i }}"),
               Contains("expected {% endfor %}, found the "
                        "end of the template"));
    CHECK_THAT(jinja_refusal("{{ list.append(1) }}"), Contains("templates must not change a list"));
    CHECK_THAT(jinja_refusal("x\n{{ raise_exception('Roles must alternate') }}"),
               Contains("t.jinja:2: the template refuses the conversation: Roles must alternate"));
    CHECK_THAT(jinja_refusal("{% macro m() %}\n{{ 1 + text }}{% endmacro %}{{ m() }}"),
               Contains("t.jinja:2: expected two numbers, two strings or two lists for +"));
    CHECK_THAT(jinja_refusal("{% include 'x' %}"), Contains("statement 'include'"));
}

TEST_CASE("a hostile template ends in an error that names the limit") {
    const auto repeat = [](const std::string &what, int times) {
        std::string out;
        for (int i = 0; i < times; ++i) out += what;
        return out;
    };
    keel::jinja::Limits small;
    small.steps = 100'000;
    small.bytes = 1 << 20;
    const std::string forever =
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    for (const std::string &source : std::vector<std::string>{
             forever,
             "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
             "{{ 'x' * 999999999999 }}",
             "{{ [1] * 999999999999 }}",
             "{{ range(100001) }}",
             "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}"
             "{% set ns.s = ns.s + ns.s %}{% endfor %}",
             "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}"
             "{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
             "{% set ns = namespace(l=[1]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}"
             "{% endfor %}",
             "{% set ns = namespace(l=1) %}{% for i in range(9999) %}{% for x in [ns.l] %}"
             "{% set ns.l = loop %}{% endfor %}{% endfor %}",
             "{{ " + repeat("(", 5000) + "1" + repeat(")", 5000) + " }}",
             "{{ " + repeat("[", 5000) + repeat("]", 5000) + " }}",
             "{{ " + repeat("-", 5000) + "1 }}",
             "{{ " + repeat("not ", 5000) + "1 }}",
             "{{ 1" + repeat(" + 1", 5000) + " }}",
             "{{ list" + repeat("[0]", 5000) + " }}",
             "{{ list" + repeat("|list", 5000) + " }}",
             repeat("{% if 1 %}", 5000),
             "{{ 1" + repeat(" if 1 else 1", 5000) + " }}",
             "{{ list|tojson(indent=99999999) }}",
             "{{ text|indent(99999999) }}",
             "{{ ('a' * 9999).replace('', 'b' * 9999) }}",
             "{{ strftime_now('%999999999d') }}",
             "{{ ('a' * 500000).find('a' * 200000 + 'b') }}" + forever,
             repeat("x", 2'000'000)}) {
        INFO(source.substr(0, 100));
        const std::string found = jinja_refusal(source, small);
        INFO(found);
        CHECK((found.find("limit") != std::string::npos ||
               found.find("at most") != std::string::npos ||
               found.find("too long") != std::string::npos));
    }
    // objects that hold each other are freed
    CHECK(jinja_text("{% set ns = namespace() %}{% set ns.self = [ns, {'a': ns}] %}"
                     "{% macro m() %}{% endmacro %}{% set ns.m = m %}{% set k = [m] %}ok") == "ok");
    CHECK_THAT(jinja_refusal("{{ 9223372036854775807 + 1 }}"), Contains("64 bits"));
    CHECK(jinja_text("{{ 'a\xFF' }}") == "a\uFFFD");
}

TEST_CASE("the date of a template can be set, and a template of tools is used for tools") {
    CHECK(jinja_text("{{ strftime_now('%Y') }}") == "2026");
    const ChatTemplate chat = jinja_chat("plain", "tools: {{ tools|length }}");
    const auto text = [&](const std::string &json) {
        return chat.text(
            tiny_tokenizer(),
            keel::render_chat(chat, keel::read_chat_request(json, "t.json"), tiny_tokenizer()));
    };
    CHECK(text(R"([{"role": "user", "content": "x"}])") == "plain");
    CHECK(text(R"({"messages": [], "tools": [{}, {}]})") == "tools: 2");
}

TEST_CASE("a request for a chat that is not valid is refused with its place") {
    const auto refused = [](const std::string &json) {
        try {
            (void)keel::read_chat_request(json, "talk.json");
        } catch (const keel::Error &error) {
            return std::string(error.what());
        }
        return std::string("no error");
    };
    CHECK_THAT(refused("5"), Contains("talk.json: expected a list of messages or an object"));
    CHECK_THAT(refused("[{\"role\": 1}]"), Contains("talk.json: message 1: expected an object with "
                                                    "the key role"));
    CHECK_THAT(refused("{\"message\": []}"), Contains("unknown key 'message'"));
    CHECK_THAT(refused("{}"), Contains("expected the key messages"));
    CHECK_THAT(refused("{\"messages\": [], \"tools\": 1}"), Contains("tools: expected a list"));
    CHECK_THAT(refused("[1,]"), Contains("talk.json:1:4: not valid JSON"));
    CHECK_THAT(refused("[99999999999999999999]"), Contains("64 bits"));
    const ChatTemplate named = *ChatTemplate::by_name("chatml");
    const auto render_named = [&](const std::string &json) {
        return keel::render_chat(named, keel::read_chat_request(json, "t"), tiny_tokenizer());
    };
    CHECK_THROWS_WITH(render_named(R"({"messages": [{"role": "user", "content": "x"}],
                                       "tools": [{}]})"),
                      Contains("the chat template chatml cannot write tools"));
    CHECK_THROWS_WITH(render_named(R"([{"role": "tool", "content": "x"}])"),
                      Contains("messages with the role 'tool'"));
    CHECK(named.text(tiny_tokenizer(), render_named(R"([{"role": "user", "content": "x"}])")) ==
          "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n");
}
