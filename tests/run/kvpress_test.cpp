// The slots that Keel keeps of a real text in a real model, against kvpress on the same tokens
// (make_kvpress_golden.py).
#include "run/context_repeater.hpp"
#include "run/session.hpp"
#include "support/error_text.hpp"
#include "support/kvpress_golden.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <set>

using namespace keel;
using namespace keel::test;
using nlohmann::json;

namespace {

std::string plugin_text(const json &plugin) {
    std::string text;
    for (const auto &[key, value] : plugin.at("params").items())
        text += (text.empty() ? "" : ", ") + key + ": " + value.get<std::string>();
    return "{plugin: " + plugin.at("plugin").get<std::string>() + ", params: {" + text + "}";
}

std::string pipeline_text(const json &item) {
    return "model: {path: " + std::string(KEEL_SOURCE_DIR) +
           "/models/tiny, context: 1024}\nbackend: {plugin: cpu, params: {compute: exact}}\n"
           "kv: {dtype: f32}\npolicy: " +
           plugin_text(item) +
           ", budget: {tokens: " + std::to_string(item.at("budget").get<int>()) +
           "}, allocator: " + plugin_text(item.at("allocator")) +
           "}, protect: {prefix: " + std::to_string(item.at("prefix").get<int>()) +
           "}, trigger: {on: [prefill_end]}}\nstrict: true\n";
}

constexpr const char *chatml =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";

// models/tiny with a chat template.
Pipeline with_template(const TempFolder &folder, std::string_view jinja) {
    const auto tiny = std::filesystem::path(KEEL_SOURCE_DIR) / "models/tiny";
    for (const char *file : {"config.json", "model.safetensors", "tokenizer.json"})
        std::filesystem::create_symlink(tiny / file, folder / file);
    folder.write("tokenizer_config.json", "{}");
    folder.write("chat_template.jinja", jinja);
    return Pipeline(
        pipeline::parse_config("model: {path: " + folder.path().string() +
                                   ", context: 512}\nbackend: {plugin: cpu}\npolicy: {plugin: "
                                   "kvzip, params: {compat: kvpress}, budget: {tokens: "
                                   "40}}\n",
                               "words.yaml", "/"));
}

} // namespace

TEST_CASE("In a chat, kvpress's repetition begins with the end of a question, and leaves out what "
          "is before the question") {
    const TempFolder folder;
    Pipeline pipeline = with_template(folder, chatml);
    const Tokenizer &tokenizer = *pipeline.tokenizer();
    const auto equal = [&](std::span<const int32_t> ids, const char *text) {
        return std::vector(ids.begin(), ids.end()) == tokenizer.encode(text, false);
    };
    Sequence sequence(pipeline);
    sequence.cache.add(pipeline.engine(), pipeline.policy_setup());
    const ContextRepeater repeater(sequence);
    CHECK(equal(repeater.instruction(false), "\n\nRepeat the previous context exactly."));
    CHECK(equal(repeater.instruction(true),
                "\n\nRepeat the part of the previous context exactly, starting with"));
    CHECK(equal(repeater.opening(), "<|im_end|>\n<|im_start|>assistant\n"));
    const std::string prefix = "<|im_start|>user\n";
    sequence.text.append(tokenizer.encode(prefix, false));
    const int64_t length = std::ssize(sequence.text.tokens());
    CHECK(repeater.skipped() == 0); // nothing would be left
    sequence.text.append(tokenizer.encode("Once upon a time", false));
    CHECK(repeater.skipped() == length);
    sequence.text.assign(tokenizer.encode("Once upon a time", false));
    CHECK(repeater.skipped() == 0); // no chat
}

TEST_CASE("compat: kvpress is refused for a chat template that does not write the question") {
    const TempFolder folder;
    Pipeline pipeline = with_template(folder, "{{ messages | length }}");
    Sequence sequence(pipeline);
    sequence.cache.add(pipeline.engine(), pipeline.policy_setup());
    CHECK_THAT(error_text([&] { ContextRepeater{sequence}; }, ErrorKind::input),
               Catch::Contains("the template failed; remove compat") &&
                   Catch::Contains("does not write the user's question"));
}

TEST_CASE("Keel keeps the slots of models/tiny that kvpress keeps") {
    const json file = kvpress_golden().at("model");
    const auto ids = file.at("tokens").get<std::vector<int32_t>>();
    const auto layers = file.at("layers").get<uint32_t>(),
               heads = file.at("kv_heads").get<uint32_t>();
    std::set<std::string> seen;
    int rows = 0, equal = 0;
    for (const json &item : file.at("cases")) {
        const std::string text = pipeline_text(item);
        INFO(text);
        Pipeline pipeline(pipeline::parse_config(text, "kvpress.yaml", "/"));
        Session session(pipeline);
        REQUIRE(session.prefill(ids, false));
        session.end_prompt();
        REQUIRE(session.cache().evictions() == 1);
        seen.insert(item.at("plugin").get<std::string>() + " " +
                    item.at("allocator").at("plugin").get<std::string>());
        for (uint32_t row = 0; row < layers * heads; ++row) {
            INFO("layer " << row / heads << ", head " << row % heads);
            const auto positions = session.cache().cache().positions(row / heads, row % heads);
            const KvpressRow result =
                compare_with_kvpress({positions.begin(), positions.end()}, item, row);
            ++rows;
            equal += result.is_equal;
            CHECK((result.is_equal || result.is_near_tie));
        }
    }
    CHECK(seen == std::set<std::string>{"expected_attention adaptive", "expected_attention uniform",
                                        "h2o uniform", "keydiff adaptive", "keydiff uniform",
                                        "knorm adaptive", "knorm uniform", "kvzip adaptive",
                                        "sliding_window uniform", "snapkv adaptive",
                                        "snapkv pyramid", "snapkv uniform", "tova uniform"});
    INFO(equal << " of " << rows << " heads keep exactly kvpress's slots, the others but for ties");
    CHECK(equal * 20 > rows * 19);
}
