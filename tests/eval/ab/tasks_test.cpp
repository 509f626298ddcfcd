#include "eval/ab/tasks/answers.hpp"
#include "eval/ab/tasks/generators.hpp"
#include "eval/ab/tasks/tasks.hpp"
#include "support/contains.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <numeric>
#include <set>

using namespace keel;
using test::contains;
using test::error_text;

namespace {

const std::filesystem::path tiny_model = std::filesystem::path(KEEL_SOURCE_DIR) / "models/tiny";

const Tokenizer &tokenizer() {
    static const std::unique_ptr<Tokenizer> one = load_tokenizer(tiny_model);
    return *one;
}

ab::Task task_of(ab::TaskKind kind) {
    ab::Task t;
    t.kind = kind;
    t.name = ab::task_kind_name(kind);
    t.lengths = {256};
    t.depths = kind == ab::TaskKind::passkey ? 5 : 0;
    t.items = 2;
    return t;
}

std::string text_of(const std::vector<int32_t> &ids) {
    return tokenizer().decode(ids, DecodeOptions{.skip_special = true, .continues = true});
}

} // namespace

TEST_CASE("the pass-key is written in the words of the training corpus, at its depth") {
    const ab::Filler filler(
        "One sentence. Another one. A third. And a fourth one that is longer.\n", "text");
    for (const double depth : {0.0, 0.5, 1.0}) {
        const ab::RecallDocument d = ab::make_passkey(SplitMix64(7), filler, 400, depth);
        REQUIRE(d.questions.size() == 1);
        const std::string &key = d.questions[0].expected;
        CHECK(key.size() == 5);
        const std::string head =
            "There is a pass key hidden in this text. Find it and remember it.\n";
        const std::string needle =
            "The pass key is " + key + ". Remember it. " + key + " is the pass key.\n";
        CHECK(d.context.starts_with(head));
        CHECK(d.context.ends_with("\n"));
        const size_t at = d.context.find(needle);
        REQUIRE(at != std::string::npos);
        const double found =
            static_cast<double>(at - head.size()) /
            static_cast<double>(d.context.size() - head.size() - needle.size() - 1);
        CHECK(found == Approx(depth).margin(0.15));
        CHECK((at == head.size() || d.context.substr(at - 2, 2) == ". ")); // between sentences
        CHECK(d.questions[0].plain.question == "What is the pass key?");
        CHECK(d.questions[0].plain.opening == " The pass key is ");
        // The same random numbers give the same document.
        CHECK(ab::make_passkey(SplitMix64(7), filler, 400, depth).context == d.context);
        CHECK(ab::make_passkey(SplitMix64(8), filler, 400, depth).context != d.context);
    }
}

TEST_CASE("facts are written in the words of the training corpus, with a question for each") {
    const ab::Filler filler("One sentence. Another one.\nA third. And a fourth.\n", "text");
    std::set<size_t> counts;
    for (uint64_t seed = 0; seed < 40; ++seed) {
        const ab::RecallDocument d = ab::make_facts(SplitMix64(seed), filler, 300);
        counts.insert(d.questions.size());
        CHECK(d.context.starts_with("Remember these facts.\nFact: In "));
        for (const ab::RecallQuestion &q : d.questions) {
            const std::string &text = q.plain.question;
            INFO(text);
            REQUIRE(text.starts_with("Question: What is in "));
            REQUIRE(text.ends_with("?"));
            CHECK(q.plain.opening == " Answer:");
            const std::string place = text.substr(21, text.size() - 21 - 1);
            CHECK(q.chat.opening == "In " + place + " there is");
            const std::string fact = "Fact: In " + place + " there is " + q.expected + ".\n";
            const size_t at = d.context.find(fact);
            REQUIRE(at != std::string::npos);
            CHECK(q.depth ==
                  Approx(static_cast<double>(at) / static_cast<double>(d.context.size())));
        }
    }
    CHECK(counts == std::set<size_t>{2, 3, 4, 5, 6});
}

TEST_CASE("filler is cut at texts or lines, ends after a sentence, and never splits a character") {
    SplitMix64 draws(1);
    const ab::Filler marked("First text.\nIts second line.\n<|endoftext|>\nSecond text. \n",
                            "text");
    const std::string long_one = marked.make(draws, 200);
    CHECK(contains(long_one, "First text. Its second line."));
    CHECK(long_one.find('\n') == std::string::npos);
    CHECK(long_one.size() <= 200);
    CHECK(long_one.ends_with(". "));
    const ab::Filler accents("\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\n", "text");
    for (size_t bytes = 1; bytes < 30; ++bytes) {
        const std::string text = accents.make(draws, bytes);
        CHECK(text.size() <= bytes);
        int open = 0;
        for (const char c : text)
            open += static_cast<unsigned char>(c) == 0xC3   ? 1
                    : static_cast<unsigned char>(c) == 0xA9 ? -1
                                                            : 0;
        CHECK(open == 0);
    }
    CHECK(marked.make(draws, 0).empty());
    // If a text has no end of a sentence nearby, it is cut after a word.
    const ab::Filler endless("one, two \"three\" four -- five! six and so on without any end\n",
                             "text");
    for (size_t bytes = 30; bytes < 130; ++bytes) {
        const std::string text = endless.make(draws, bytes);
        INFO(text);
        CHECK(text.size() <= bytes);
        CHECK(text.size() + 12 > bytes);
        CHECK(text.ends_with(' '));
        CHECK((text.ends_with(". ") || text.ends_with("! ")));
    }
    CHECK(contains(error_text([] { ab::Filler("\n \n", "empty.txt"); }), "empty.txt"));
}

TEST_CASE("prompts of a task have the requested length, and all protocols have the same tokens") {
    for (const ab::TaskKind kind : {ab::TaskKind::passkey, ab::TaskKind::facts}) {
        ab::Task task = task_of(kind);
        task.lengths = {160, 512};
        const auto items = make_task_items(task, tokenizer(), tiny_model);
        CHECK(items->has_question());
        CHECK(items->score_name() == "hit");
        REQUIRE(items->documents() == (kind == ab::TaskKind::passkey ? 20U : 4U));
        for (size_t d = 0; d < items->documents(); ++d) {
            const auto blind = items->units(d, ab::Protocol::question_blind),
                       aware = items->units(d, ab::Protocol::query_aware),
                       whole = items->units(d, ab::Protocol::whole_prompt);
            REQUIRE(blind.size() == 1); // there is one prompt, and all questions follow it
            const ab::Unit &unit = blind[0];
            const auto asked = static_cast<size_t>(task.lengths[d % 2]);
            REQUIRE(aware.size() == unit.questions.size());
            REQUIRE(whole.size() == unit.questions.size());
            CHECK_FALSE(unit.split_changes_tokens);
            size_t longest = 0;
            for (size_t q = 0; q < aware.size(); ++q) {
                std::vector<int32_t> together = unit.prompt;
                together.insert(together.end(), unit.questions[q].ask.begin(),
                                unit.questions[q].ask.end());
                CHECK(whole[q].questions[0].ask.empty()); // the question is a part of the prompt
                CHECK(together == whole[q].prompt);
                // The question is a part of the prompt. The first words of the answer are not.
                CHECK(text_of(aware[q].questions[0].ask) ==
                      (kind == ab::TaskKind::passkey ? " The pass key is " : " Answer:"));
                std::vector<int32_t> joined = aware[q].prompt;
                joined.insert(joined.end(), aware[q].questions[0].ask.begin(),
                              aware[q].questions[0].ask.end());
                CHECK(joined == together);
                CHECK(aware[q].questions[0].item == unit.questions[q].item);
                CHECK(aware[q].document == unit.document);
                longest = std::max(longest, together.size());
            }
            CHECK(longest <= asked);
            CHECK(longest * 100 >= asked * 96); // the text is filled up to the last word that fits
            CHECK(unit.prompt.front() == *tokenizer().bos_id());
        }
        CHECK(items->longest(items->documents()).whole > 512);
    }
    ab::Task small = task_of(ab::TaskKind::passkey);
    small.lengths = {20};
    CHECK(contains(error_text([&] { make_task_items(small, tokenizer(), tiny_model); }),
                   "the shortest prompt has"));
    ab::Task nowhere = task_of(ab::TaskKind::facts);
    CHECK(
        contains(error_text([&] { make_task_items(nowhere, tokenizer(), "/nowhere/model.gguf"); }),
                 "set 'filler: FILE'"));
}

TEST_CASE("an answer to a recall question is its first sentence") {
    const auto items = make_task_items(task_of(ab::TaskKind::passkey), tokenizer(), tiny_model);
    CHECK(items->clean(" 12345.\nWhat") == "12345");
    CHECK(items->score("12345", {"12345"}) == 1);
    CHECK(items->score("12346", {"12345"}) == 0);
    CHECK(items->score("123456", {"12345"}) == 0); // only whole words count
    CHECK(items->score("Number 12345, of course", {"12345"}) == 1);
    CHECK(items->score("In Max's hat there is an Orange stone", {"a orange stone"}) == 1);
    CHECK(items->score("an orange and gray stone", {"a orange stone"}) == 0);
    CHECK(items->score("", {"12345"}) == 0);
    CHECK(items->ends(" 12345."));
    CHECK_FALSE(items->ends(" 12"));
    CHECK_FALSE(items->ends("\n 12")); // characters before the answer do not end it
    CHECK(ab::first_sentence("  a red ball \n") == "a red ball");
    CHECK(ab::first_sentence("") == "");
}

TEST_CASE(
    "a continuation uses pieces of a text, with one token between the prefix and the scored part") {
    ab::Task task;
    task.kind = ab::TaskKind::continuation;
    task.name = "continuation";
    task.text = tiny_model / "heldout.txt";
    task.prefix = 100;
    task.score = 20;
    task.documents = 7;
    const auto items = make_task_items(task, tokenizer(), tiny_model);
    CHECK_FALSE(items->has_question());
    CHECK(items->longest(7).whole == 120);
    std::set<std::vector<int32_t>> different;
    for (size_t d = 0; d < 7; ++d) {
        const auto units = items->units(d, ab::Protocol::question_blind);
        REQUIRE(units.size() == 1);
        CHECK(units[0].prompt.size() == 100); // including the begin token
        CHECK(units[0].prompt.front() == *tokenizer().bos_id());
        CHECK(units[0].continuation.size() == 21); // 20 tokens are fed, and 20 are scored
        CHECK(units[0].questions.empty());
        different.insert(units[0].prompt);
    }
    CHECK(different.size() == 7);
    task.documents = 1'000'000;
    CHECK(contains(error_text([&] { make_task_items(task, tokenizer(), tiny_model); }),
                   "the task needs 1000000 documents"));
    task.text = "/nowhere.txt";
    CHECK(contains(error_text([&] { make_task_items(task, tokenizer(), tiny_model); }),
                   "task 'continuation'"));
}

TEST_CASE("RULER's and LongBench's files become prompts with expected answers") {
    const test::TempFolder folder;
    ab::Task task;
    task.kind = ab::TaskKind::jsonl;
    task.name = "mine";
    task.max_tokens = 8;
    task.prompt = "{context}\nQuestion: {input} Answer:";
    task.path = folder.write(
        "ruler.jsonl",
        R"({"index": 0, "input": "A long text.\nMore of it.\nWhat is it? It is", )"
        R"("outputs": ["x", "y"], "length": 9})"
        "\n\n"
        R"({"index": 1, "input": "Text.\nWhat? ", "answer_prefix": "It is", "outputs": [12]})"
        "\n");
    {
        const auto items = make_task_items(task, tokenizer(), tiny_model);
        REQUIRE(items->documents() == 2);
        CHECK(items->score_name() == "substring_all");
        const ab::Unit unit = items->units(0, ab::Protocol::question_blind).at(0);
        CHECK(text_of(unit.prompt) == "A long text.\nMore of it.\n");
        CHECK(text_of(unit.questions.at(0).ask) == "What is it? It is");
        CHECK(unit.questions[0].expected == std::vector<std::string>{"x", "y"});
        CHECK(unit.questions[0].max_tokens == 8);
        const ab::Unit second = items->units(1, ab::Protocol::question_blind).at(0);
        CHECK(text_of(second.questions.at(0).ask) == "What? It is");
        CHECK(second.questions[0].expected == std::vector<std::string>{"12"});
        const ab::Longest longest = items->longest(2);
        CHECK(longest.prompt ==
              std::ssize(items->units(0, ab::Protocol::whole_prompt).at(0).prompt));
        // The question is known before the eviction. The first words of the answer follow after the
        // eviction. If there are none, the last token of the question follows.
        const ab::Unit known = items->units(1, ab::Protocol::query_aware).at(0);
        CHECK(text_of(known.prompt) == "Text.\nWhat? ");
        CHECK(text_of(known.questions.at(0).ask) == "It is");
        const ab::Unit bare = items->units(0, ab::Protocol::query_aware).at(0);
        CHECK(bare.questions.at(0).ask.size() == 1);
        CHECK(longest.whole == longest.prompt + 8);
        CHECK(contains(longest.whole_at, "ruler.jsonl:1"));
    }
    task.path = folder.write(
        "longbench.jsonl",
        R"({"context": "Some context.", "input": "Who?", "answers": ["He"], "length": 3})"
        "\n"
        R"({"context": "Some context.", "input": "Where?", "answers": ["There"]})"
        "\n");
    task.metric = ab::AnswerMetric::f1;
    {
        const auto items = make_task_items(task, tokenizer(), tiny_model);
        REQUIRE(items->documents() == 2);
        const ab::Unit unit = items->units(0, ab::Protocol::question_blind).at(0);
        CHECK(text_of(unit.prompt) == "Some context.");
        CHECK(text_of(unit.questions.at(0).ask) == "\nQuestion: Who? Answer:");
        // Questions on the same context belong to the same document.
        CHECK(items->units(1, ab::Protocol::question_blind).at(0).document == unit.document);
    }
    for (const auto &[line, message] : std::vector<std::pair<std::string, std::string>>{
             {"[1]", "expected a JSON object"},
             {"{\"input\": \"a\\nb\"}", "expected the key 'outputs' (RULER) or 'answers'"},
             {"{\"outputs\": [\"x\"]}", "'input' is missing"},
             {"{\"input\": \"one line\", \"outputs\": [\"x\"]}", "found only one line"},
             {"{\"input\": \"a\\nb\", \"outputs\": []}",
              "outputs: expected 1 to 1000 answers, found an array of 0"},
             {"{\"input\": \"a\\nb\", \"outputs\": [{}]}",
              "outputs[0]: expected a string, found an object"},
             {"{\"input\": 3, \"outputs\": [\"x\"]}", "input: expected a string, found 3"},
             {"{\"input\": \"a\\nb\", \"outputs\": [\"\"]}",
              "outputs[0]: expected an answer, found an empty text"}}) {
        task.path = folder.write("wrong.jsonl", "\n" + line + "\n");
        const std::string found =
            error_text([&] { make_task_items(task, tokenizer(), tiny_model); });
        INFO(found);
        CHECK(contains(found, message));
        CHECK(contains(found, "wrong.jsonl:2: "));
    }
    task.path = folder.write("empty.jsonl", "\n");
    CHECK(contains(error_text([&] { make_task_items(task, tokenizer(), tiny_model); }),
                   "found an empty file"));
}

TEST_CASE("answers are scored like in the scripts of the benchmarks") {
    const std::vector<std::string> two = {"Red ball", "key"};
    CHECK(ab::answer_score(ab::AnswerMetric::substring_all, "a red BALL.", two) == 0.5);
    CHECK(ab::answer_score(ab::AnswerMetric::substring_all, "key and red ball", two) == 1);
    CHECK(ab::answer_score(ab::AnswerMetric::substring_any, "a red BALL.", two) == 1);
    CHECK(ab::answer_score(ab::AnswerMetric::substring_any, "nothing", two) == 0);
    CHECK(ab::answer_score(ab::AnswerMetric::exact, " The red ball! ", two) == 1);
    CHECK(ab::answer_score(ab::AnswerMetric::exact, "red balls", two) == 0);
    CHECK(ab::answer_score(ab::AnswerMetric::f1, "the red car",
                           std::vector<std::string>{"a red ball"}) == Approx(0.5));
    CHECK(ab::answer_score(ab::AnswerMetric::f1, "", std::vector<std::string>{"a red ball"}) == 0);
    CHECK(ab::answer_score(ab::AnswerMetric::f1, "x", {}) == 0);
}
