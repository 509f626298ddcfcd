#include "eval/ab/tasks/prompt_form.hpp"
#include "eval/ab/tasks/tasks.hpp"
#include "support/contains.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace keel;
using test::contains;
using test::error_text;

namespace {

const std::filesystem::path form_model = std::filesystem::path(KEEL_SOURCE_DIR) / "models/tiny";

const Tokenizer &form_tokenizer() {
    static const std::unique_ptr<Tokenizer> one = load_tokenizer(form_model);
    return *one;
}

ab::PromptForm form_of(const std::string &name, std::optional<std::string> system = {}) {
    ab::Chat chat;
    chat.template_name = name;
    chat.system = std::move(system);
    chat.where = {"ab.yaml", 3, 7};
    return ab::PromptForm::choose(chat, form_model);
}

std::string marked(const std::vector<int32_t> &ids) {
    return form_tokenizer().decode(ids, DecodeOptions{.skip_special = false, .continues = true});
}

} // namespace

TEST_CASE("in a chat template, the user asks the question and the model begins the answer") {
    const std::string end = std::string(form_tokenizer().piece(*form_tokenizer().eos_id()));
    const ab::PromptText text{"Some context. ", "What? " + end, " It is "};
    const ab::PromptForm chat = form_of("zephyr", "Be brief.");
    CHECK(chat.is_chat());
    CHECK(chat.description() == "chat template zephyr, the system prompt 'Be brief.'");
    const ab::PromptTokens t = chat.tokens(form_tokenizer(), text);
    CHECK(marked(t.context) == "<|system|>\nBe brief." + end + "\n<|user|>\nSome context. ");
    CHECK(marked(t.question) == "What? " + end);
    CHECK(marked(t.opening) == end + "\n<|assistant|>\nIt is");
    // The template's mark is a special token. The same letters in a question are plain text.
    const auto marks = [](const std::vector<int32_t> &ids) {
        return std::count(ids.begin(), ids.end(), *form_tokenizer().eos_id());
    };
    CHECK(marks(t.context) == 1);
    CHECK(marks(t.question) == 0);
    CHECK(marks(t.opening) == 1);
    CHECK(chat.ends_answer(form_tokenizer(), *form_tokenizer().eos_id()));
    CHECK_FALSE(chat.ends_answer(form_tokenizer(), t.question.front()));

    const ab::PromptForm bare = form_of("zephyr", "none");
    CHECK(bare.description() == "chat template zephyr, no system prompt");
    CHECK(marked(bare.tokens(form_tokenizer(), text).context) == "<|user|>\nSome context. ");
    // If the tokenizer has no token for a mark, the mark ends an answer as text.
    const ab::PromptForm chatml = form_of("chatml");
    CHECK(chatml.before_end(form_tokenizer(), "a ball<|im_end|>\n") == "a ball");
    CHECK_FALSE(chatml.before_end(form_tokenizer(), "a ball"));
    // A template that contains the date always gets the same date.
    CHECK(contains(marked(form_of("llama3.2").tokens(form_tokenizer(), text).context),
                   "Today Date: 26 Jul 2024"));

    ab::Task facts;
    facts.kind = ab::TaskKind::facts;
    facts.name = "facts";
    facts.lengths = {256};
    facts.items = 2;
    const auto items = make_task_items(facts, form_tokenizer(), form_model, chat);
    for (const ab::Unit &unit : items->units(0, ab::Protocol::query_aware)) {
        const auto length = std::ssize(unit.prompt) + std::ssize(unit.questions.at(0).ask);
        CHECK(length <= 256);
        CHECK(length * 100 >= 256 * 90);
        CHECK(marked(unit.prompt).starts_with("<|system|>\nBe brief."));
        CHECK(contains(marked(unit.questions[0].ask), "<|assistant|>\nIn "));
        CHECK(marked(unit.questions[0].ask).ends_with(" there is"));
    }
}

TEST_CASE("prompts have the form of the model's template, of a named template, or of plain text") {
    const ab::PromptForm plain = form_of("auto"); // the files of models/tiny name no template
    CHECK_FALSE(plain.is_chat());
    CHECK(plain.description() == "plain text");
    CHECK_FALSE(form_of("none").is_chat());
    const ab::PromptTokens t = plain.tokens(form_tokenizer(), {"A text.\n", "What?", " It is"});
    CHECK(t.context.front() == *form_tokenizer().bos_id());
    CHECK(marked(t.question) == "What?");
    CHECK(marked(t.opening) == " It is");
    CHECK_FALSE(t.split_changes_tokens);
    CHECK(contains(error_text([] { form_of("chatlm"); }), "did you mean 'chatml'?"));
    CHECK(contains(error_text([] { form_of("chatlm"); }), "ab.yaml:3:7: "));
    CHECK(
        contains(error_text([] { form_of("auto", "Be brief."); }), "'chat.system' has no effect"));
    const test::TempFolder folder;
    for (const char *file : {"tokenizer.json", "tokenizer_config.json"})
        std::filesystem::copy_file(form_model / file, folder / file);
    folder.write("chat_template.jinja", "{% for m in messages %}<{{ m.content }}>{% endfor %}!");
    ab::Chat chat;
    const ab::PromptForm own = ab::PromptForm::choose(chat, folder / "");
    CHECK(contains(own.description(), "chat template jinja-"));
    const ab::PromptTokens mine = own.tokens(form_tokenizer(), {"A text.\n", "What?", " It is"});
    CHECK(marked(mine.context) == "<A text.\n");
    CHECK(marked(mine.question) == "What?");
    CHECK(marked(mine.opening) == ">!It is");
    chat.system = "none"; // the template writes no system prompt of its own
    CHECK(ab::PromptForm::choose(chat, folder / "").is_chat());
    folder.write("chat_template.jinja", "{% if messages[0].role != 'system' %}Be kind. {% endif %}"
                                        "{% for m in messages %}<{{ m.content }}>{% endfor %}");
    CHECK(contains(error_text([&] { ab::PromptForm::choose(chat, folder / ""); }),
                   "writes a system prompt of its own: 'Be kind. '"));
    folder.write("chat_template.jinja", "{% nope %}");
    CHECK(contains(error_text([&] { ab::PromptForm::choose({}, folder / ""); }),
                   "chat_template.jinja:1: unknown or misplaced statement"));
}

TEST_CASE("a question that a template trims to nothing is refused with its file and line") {
    const test::TempFolder folder;
    ab::Task task;
    task.kind = ab::TaskKind::jsonl;
    task.name = "mine";
    task.max_tokens = 8;
    task.prompt = "{context}\n{input}";
    task.path = folder.write("blank.jsonl",
                             R"({"context": "Some context.", "input": " ", "answers": ["x"]})"
                             "\n");
    ab::Chat chat;
    chat.template_name = "gemma";
    const auto items = make_task_items(task, form_tokenizer(), form_model,
                                       ab::PromptForm::choose(chat, form_model));
    const std::string found = error_text([&] { items->longest(1); });
    INFO(found);
    CHECK(contains(found, "blank.jsonl:1: "));
}
