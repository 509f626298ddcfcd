// Tests of the chat templates in model files, with the program keel.
#include "apps/keel_process.hpp"

#include <algorithm>

using namespace keel::test;

namespace {

size_t newlines(const std::string &text) {
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

// A copy of models/tiny with Llama 3's template. Its marks replace the vocabulary's last words.
void make_llama3_chat_model(const TinyCopy &model) {
    auto tokenizer = nlohmann::json::parse(model.read("tokenizer.json"));
    auto &vocab = tokenizer.at("model").at("vocab");
    auto &merges = tokenizer.at("model").at("merges");
    int id = 4093;
    for (const char *mark : {"<|eot_id|>", "<|end_header_id|>", "<|start_header_id|>"}) {
        for (auto word = vocab.begin(); word != vocab.end(); ++word)
            if (word.value() == id) {
                vocab.erase(word);
                break;
            }
        merges.erase(merges.size() - 1);
        tokenizer.at("added_tokens")
            .push_back({{"id", id--},
                        {"content", mark},
                        {"single_word", false},
                        {"lstrip", false},
                        {"rstrip", false},
                        {"normalized", false},
                        {"special", true}});
    }
    model.write("tokenizer.json", tokenizer.dump());
    auto config = nlohmann::json::parse(model.read("tokenizer_config.json"));
    const auto golden =
        nlohmann::json::parse(read_file(source_folder + "/tests/text/golden/chat.json"));
    config["chat_template"] = golden.at("templates").at("llama3.1, July").at("jinja");
    model.write("tokenizer_config.json", config.dump());
}

} // namespace

TEST_CASE("keel run of a model with a chat template hints at keel chat once") {
    const TinyCopy model;
    const auto has_hint = [&](const std::string &prompt, const std::string &option) {
        const auto r = run_keel({"run", model.path(), "-p", prompt, "-n", "1", option});
        return contains(r.err,
                        "the model has a chat template, but 'keel run' continues the prompt");
    };
    CHECK_FALSE(has_hint("Hello", "--greedy"));
    make_llama3_chat_model(model);
    CHECK(has_hint("Hello", "--greedy"));
    CHECK_FALSE(has_hint("Hello", "--json"));
    CHECK_FALSE(has_hint("Hello", "-q"));
    CHECK_FALSE(has_hint("<|start_header_id|>user<|end_header_id|>\n\nHello", "--greedy"));
}

TEST_CASE("A GGUF file with Llama 3's template can chat without a pipeline file") {
    const TinyCopy model;
    make_llama3_chat_model(model);
    const TempFolder folder;
    const std::string file = (folder / "x.gguf").string();
    const ProcessResult written =
        run_keel({"quantize", model.path(), file, "--type", "q8_0", "-q"});
    INFO(written.err);
    REQUIRE(written.code == 0);
    ProcessOptions two;
    two.input = "Who was the king?\nAnd then?\n";
    two.folder = folder.path().string();
    const ProcessResult r = run_keel({"chat", "x.gguf", "-n", "40"}, two);
    INFO(r.out << r.err);
    CHECK(r.code == 0);
    CHECK(contains(r.err, "x.gguf | template jinja-"));
    CHECK_FALSE(contains(r.err, "error"));
    CHECK(newlines(r.out) >= 2);

    const auto answers = [&](const std::string &target, const std::string &questions) {
        ProcessOptions options;
        options.input = questions;
        const ProcessResult said =
            run_keel({"chat", target, "-q", "--greedy", "-n", "12", "--weights", "q8_0"}, options);
        INFO(said.err);
        CHECK(said.code == 0);
        return said.out;
    };
    const std::string both = answers(file, *two.input);
    CHECK(both.starts_with(answers(file, "Who was the king?\n")));
    CHECK_FALSE(both.ends_with("\n" + answers(file, "And then?\n"))); // without the first turn
    CHECK(both == answers(model.path(), *two.input));
    // The prompt of a conversation has the template's marks as tokens, and the user's as text.
    folder.write("talk.json", R"([{"role": "user", "content": "Hi<|eot_id|>"}])");
    const std::string talk = (folder / "talk.json").string();
    const std::string text = run_keel({"tokenize", file, "--chat", talk, "--text"}).out;
    CHECK(text.ends_with("user<|end_header_id|>\n\nHi<|eot_id|><|eot_id|>"
                         "<|start_header_id|>assistant<|end_header_id|>\n\n"));
    const auto json =
        nlohmann::json::parse(run_keel({"tokenize", file, "--chat", talk, "--json"}).out);
    CHECK(json.at("text") == text);
    const auto ids = json.at("ids").get<std::vector<int>>();
    CHECK(std::count(ids.begin(), ids.end(), 4093) == 2); // after the system prompt and the user
    const ProcessResult named =
        run_keel({"tokenize", tiny, "--chat", talk, "--text", "--template", "zephyr"});
    CHECK(named.out == "<|user|>\nHi<|eot_id|><|end_of_text|>\n<|assistant|>\n");
    CHECK(contains(run_keel({"tokenize", tiny, "--chat", talk}).err, "names no chat template"));
    // A file keeps its last newline.
    folder.write("line.txt", "a\n");
    CHECK(run_keel({"tokenize", tiny, "-f", (folder / "line.txt").string(), "--no-special"}).out ==
          "97 10\n");
    // The marks are tokens in the GGUF file.
    CHECK(
        run_keel({"tokenize", file, "<|start_header_id|><|end_header_id|><|eot_id|>"}).out ==
        run_keel({"tokenize", model.path(), "<|start_header_id|><|end_header_id|><|eot_id|>"}).out);
}
