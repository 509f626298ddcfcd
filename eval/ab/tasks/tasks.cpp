#include "eval/ab/tasks/tasks.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/ab/tasks/answers.hpp"
#include "eval/ab/tasks/generators.hpp"
#include "eval/ab/tasks/jsonl_task.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <functional>
#include <system_error>

namespace keel::ab {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t most_text = uint64_t{256} << 20;

fs::path filler_path(const Task &task, const fs::path &model) {
    if (!task.filler.empty()) return task.filler;
    std::error_code error;
    const fs::path beside =
        (fs::is_directory(model, error) ? model : model.parent_path()) / "heldout.txt";
    if (!fs::is_regular_file(beside, error))
        throw_error(ErrorKind::input,
                    "'filler': no filler text found, because there is no "
                    "heldout.txt next to the model; set 'filler: FILE' to a text");
    return beside;
}

// ---- continuation ------------------------------------------------------------------------------

class Continuation : public TaskItems {
  public:
    Continuation(const Task &task, const Tokenizer &tokenizer) : task_(task) {
        const std::string text = read_text_file(task.text, most_text);
        ids_ = tokenizer.encode(text, EncodeOptions{.add_special = false, .parse_special = false});
        if (tokenizer.adds_bos()) begin_ = {*tokenizer.bos_id()};
        const int64_t front = std::ssize(begin_);
        before_ = task.prefix - front;
        stretch_ = before_ + task.score + 1;
        if (before_ < 1)
            throw_error(ErrorKind::input, "prefix: expected at least {} tokens, found {}",
                        front + 1, task.prefix);
        const int64_t fit = std::ssize(ids_) / stretch_;
        if (fit < task.documents)
            throw_error(
                ErrorKind::input,
                "{}: the text has {} tokens, which is enough for {} documents of {} tokens (prefix "
                "+ "
                "score + 1), but the task needs {} documents; lower documents, prefix or score",
                printable(task.text.string(), 200), ids_.size(), fit, stretch_, task.documents);
    }
    size_t documents() const override { return static_cast<size_t>(task_.documents); }
    bool has_question() const override { return false; }
    Longest longest(size_t) const override {
        return {task_.prefix, task_.prefix + task_.score, {}, {}};
    }
    std::string score_name() const override { return {}; }
    double score(const std::string &, const std::vector<std::string> &) const override { return 0; }

    std::vector<Unit> units(size_t document, Protocol) const override {
        const int64_t n = task_.documents, i = static_cast<int64_t>(document);
        const int64_t begin = n == 1 ? 0 : (std::ssize(ids_) - stretch_) * i / (n - 1);
        const auto from = ids_.begin() + begin;
        Unit unit;
        unit.document = fmt::format("{}", document);
        unit.prompt = begin_;
        unit.prompt.insert(unit.prompt.end(), from, from + before_);
        unit.continuation.assign(from + before_, from + stretch_);
        return {unit};
    }

  private:
    const Task task_;
    std::vector<int32_t> ids_, begin_;
    // before_: number of the text's tokens in a document's prompt. stretch_: number of the text's
    // tokens in the whole document.
    int64_t before_ = 0, stretch_ = 0;
};

// ---- passkey and facts ------------------------------------------------------------------------

class Recall : public TaskItems {
  public:
    Recall(const Task &task, const Tokenizer &tokenizer, const fs::path &filler,
           const PromptForm &form)
        : task_(task), tokenizer_(tokenizer), form_(form),
          filler_(read_text_file(filler, most_text), filler.string()) {
        for (const int64_t length : task.lengths) {
            const int64_t least = tokens_of(make(0, 0, 0));
            if (least > length)
                throw_error(ErrorKind::input,
                            "lengths: {} tokens are too few; the shortest prompt has {} tokens; "
                            "use longer lengths",
                            length, least);
        }
    }
    size_t documents() const override {
        return task_.lengths.size() *
               static_cast<size_t>(std::max<int64_t>(task_.depths, 1) * task_.items);
    }
    bool has_question() const override { return true; }
    Longest longest(size_t) const override {
        const int64_t prompt = *std::max_element(task_.lengths.begin(), task_.lengths.end());
        return {prompt, prompt + answer_room, {}, {}};
    }
    std::string score_name() const override { return "hit"; }
    double score(const std::string &answer,
                 const std::vector<std::string> &expected) const override {
        return contains_words(answer, expected) ? 1 : 0;
    }
    std::string clean(const std::string &answer) const override { return first_sentence(answer); }
    bool ends(const std::string &answer) const override {
        const size_t begin = answer.find_first_not_of(" \t\r\n");
        return begin != std::string::npos &&
               answer.find_first_of(".\n", begin) != std::string::npos;
    }

    // The number of the document determines its length and depth. From one document to the next,
    // the length changes first. The depth changes after all lengths have occurred. So the first few
    // documents cover all combinations.
    std::vector<Unit> units(size_t document, Protocol protocol) const override {
        const size_t lengths = task_.lengths.size(),
                     depths = static_cast<size_t>(std::max<int64_t>(task_.depths, 1));
        const int64_t length = task_.lengths[document % lengths];
        const size_t depth = document / lengths % depths;
        RecallDocument made = fitted(document, depth, length);
        if (task_.questions > 0 && std::ssize(made.questions) > task_.questions)
            made.questions.resize(static_cast<size_t>(task_.questions));
        std::vector<Unit> units;
        Unit unit;
        unit.document = fmt::format("{}", document);
        for (size_t q = 0; q < made.questions.size(); ++q) {
            const RecallQuestion &question = made.questions[q];
            Question asked;
            asked.item =
                made.questions.size() == 1 ? unit.document : fmt::format("{}.{}", document, q);
            asked.expected = {question.expected};
            asked.depth = question.depth;
            asked.max_tokens = std::min(
                answer_room, std::ssize(tokenizer_.encode(
                                 " " + question.expected,
                                 EncodeOptions{.add_special = false, .parse_special = false})) +
                                 words_around_answer);
            add_question(form_.tokens(tokenizer_, text_of(made, question)), protocol, unit,
                         std::move(asked), units);
        }
        if (!unit.questions.empty()) units.push_back(std::move(unit));
        return units;
    }

  private:
    static constexpr int64_t answer_room = 32, words_around_answer = 12;

    PromptText text_of(const RecallDocument &d, const RecallQuestion &q) const {
        const RecallWords &words = form_.is_chat() ? q.chat : q.plain;
        return {d.context, words.question, words.opening};
    }
    RecallDocument make(size_t document, size_t depth, size_t bytes) const {
        const SplitMix64 random(mixed_seed(task_.seed, document));
        if (task_.kind == TaskKind::facts) return make_facts(random, filler_, bytes);
        const double at = task_.depths <= 1
                              ? 0.5
                              : static_cast<double>(depth) / static_cast<double>(task_.depths - 1);
        return make_passkey(random, filler_, bytes, at);
    }
    // The number of tokens of the prompt with the longest question.
    int64_t tokens_of(const RecallDocument &d) const {
        int64_t longest = 0;
        for (const RecallQuestion &q : d.questions) {
            const PromptTokens t = form_.tokens(tokenizer_, text_of(d, q));
            longest = std::max(longest, std::ssize(t.context) + std::ssize(t.question) +
                                            std::ssize(t.opening));
        }
        return longest;
    }
    // Makes the document with as many words of filler as fit in `length` tokens. The amount of
    // filler is found by bisection, because more bytes nearly always give more tokens.
    RecallDocument fitted(size_t document, size_t depth, int64_t length) const {
        size_t fits = 0, too_many = static_cast<size_t>(length) * 16;
        RecallDocument best = make(document, depth, 0);
        int64_t most = tokens_of(best);
        for (size_t guess = static_cast<size_t>(length) * 3;
             too_many - fits > 1 && most < length;) {
            RecallDocument d = make(document, depth, guess);
            const int64_t tokens = tokens_of(d);
            if (tokens <= length) {
                if (tokens > most) best = std::move(d);
                most = std::max(most, tokens);
                fits = guess;
            } else {
                too_many = guess;
            }
            guess = fits + (too_many - fits) / 2;
        }
        return best;
    }

    const Task task_;
    const Tokenizer &tokenizer_;
    const PromptForm form_;
    const Filler filler_;
};

} // namespace

void add_question(const PromptTokens &tokens, Protocol protocol, Unit &shared, Question asked,
                  std::vector<Unit> &own) {
    const auto append = [](std::vector<int32_t> &to, std::span<const int32_t> ids) {
        to.insert(to.end(), ids.begin(), ids.end());
    };
    // If the answer has no opening, the last token of the question is used as the opening: the
    // model reads this token after the eviction.
    const size_t held_back = tokens.opening.empty() ? 1 : 0;
    const std::span<const int32_t> question = tokens.question;
    const auto before = question.first(question.size() - held_back),
               last = question.last(held_back);
    std::vector<int32_t> prompt = tokens.context;
    std::vector<int32_t> &first = protocol == Protocol::question_blind ? asked.ask : prompt;
    std::vector<int32_t> &second = protocol == Protocol::whole_prompt ? prompt : asked.ask;
    append(first, before);
    append(second, last);
    append(second, tokens.opening);
    Unit unit;
    Unit &into = protocol == Protocol::question_blind ? shared : unit;
    into.document = shared.document;
    into.prompt = std::move(prompt);
    into.split_changes_tokens = into.split_changes_tokens || tokens.split_changes_tokens;
    into.questions.push_back(std::move(asked));
    if (&into == &unit) own.push_back(std::move(unit));
}

std::unique_ptr<TaskItems> make_task_items(const Task &task, const Tokenizer &tokenizer,
                                           const fs::path &model, const PromptForm &form) {
    return at_task(task, [&]() -> std::unique_ptr<TaskItems> {
        switch (task.kind) {
        case TaskKind::continuation: return std::make_unique<Continuation>(task, tokenizer);
        case TaskKind::passkey:
        case TaskKind::facts:
            return std::make_unique<Recall>(task, tokenizer, filler_path(task, model), form);
        case TaskKind::jsonl: return make_jsonl_items(task, tokenizer, form);
        case TaskKind::speed: break;
        }
        throw_error(ErrorKind::internal, "a speed task has no documents");
    });
}

std::vector<fs::path> task_files(const Task &task, const fs::path &model) {
    return at_task(task, [&]() -> std::vector<fs::path> {
        switch (task.kind) {
        case TaskKind::continuation: return {task.text};
        case TaskKind::passkey:
        case TaskKind::facts: return {filler_path(task, model)};
        case TaskKind::jsonl: return {task.path};
        case TaskKind::speed: break;
        }
        return {};
    });
}

} // namespace keel::ab
