#include "eval/ab/tasks/jsonl_task.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/suggest.hpp"
#include "eval/ab/tasks/answers.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <map>

namespace keel::ab {
namespace {

constexpr uint64_t most_bytes = uint64_t{1} << 30;
constexpr size_t most_answers = 1000;
const std::vector<std::string> answer_keys = {"outputs", "answers"};
constexpr JsonLimits line_limits{most_bytes, 16};

struct Line {
    PromptText text;
    std::string document, item;
    std::vector<std::string> expected;
    size_t number = 0; // line number in the file; the first line is 1
};

class JsonlItems : public TaskItems {
  public:
    JsonlItems(const Task &task, const Tokenizer &tokenizer, const PromptForm &form)
        : task_(task), tokenizer_(tokenizer), form_(form) {
        read(read_text_file(task.path, most_bytes));
    }
    size_t documents() const override { return lines_.size(); }
    bool has_question() const override { return true; }
    Longest longest(size_t documents) const override {
        Longest out;
        for (size_t d = 0; d < std::min(documents, lines_.size()); ++d) {
            for (const Unit &unit : units(d, Protocol::whole_prompt)) {
                const auto prompt = std::ssize(unit.prompt), whole = prompt + task_.max_tokens;
                const auto at = [&] {
                    return fmt::format("{}:{}", printable(task_.path.string(), 200),
                                       lines_[d].number);
                };
                if (prompt > out.prompt) {
                    out.prompt = prompt;
                    out.prompt_at = at();
                }
                if (whole > out.whole) {
                    out.whole = whole;
                    out.whole_at = at();
                }
            }
        }
        return out;
    }
    std::string score_name() const override { return answer_metric_name(task_.metric); }
    double score(const std::string &answer,
                 const std::vector<std::string> &expected) const override {
        return answer_score(task_.metric, answer, expected);
    }
    std::vector<Unit> units(size_t document, Protocol protocol) const override {
        const Line &line = lines_[document];
        Unit unit;
        unit.document = line.document;
        Question asked;
        asked.item = line.item;
        asked.expected = line.expected;
        asked.max_tokens = task_.max_tokens;
        std::vector<Unit> units;
        add_question(tokens_of(line), protocol, unit, std::move(asked), units);
        if (!unit.questions.empty()) units.push_back(std::move(unit));
        return units;
    }

  private:
    [[noreturn]] void refuse(size_t number, const std::string &what) const {
        throw_error(ErrorKind::input, "{}:{}: {}", printable(task_.path.string(), 200), number,
                    what);
    }

    PromptTokens tokens_of(const Line &line) const {
        try {
            return form_.tokens(tokenizer_, line.text);
        } catch (const Error &e) {
            if (e.kind() != ErrorKind::input) throw;
            refuse(line.number, e.what());
        }
    }

    void read(const std::string &text) {
        size_t number = 0;
        for (size_t at = 0; at < text.size();) {
            const size_t end = std::min(text.find('\n', at), text.size());
            const std::string_view line = std::string_view(text).substr(at, end - at);
            at = end + 1;
            ++number;
            if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
            if (task_.items > 0 && std::ssize(lines_) >= task_.items) break;
            add(line, number);
        }
        if (lines_.empty())
            throw_error(ErrorKind::input,
                        "{}: expected one JSON object on each line, found an empty file",
                        printable(task_.path.string(), 200));
    }

    static std::string text_of(const JsonNode &object, const char *key) {
        const auto found = object.find(key);
        return found ? found->text() : std::string();
    }

    static std::string answer_of(const JsonNode &value) {
        std::string out = value.is_number() ? value.shown() : value.text();
        if (out.empty()) value.fail("expected an answer, found an empty text");
        return out;
    }

    static std::vector<std::string> answers_of(const JsonNode &value) {
        if (!value.is_array()) return {answer_of(value)};
        if (value.size() == 0 || value.size() > most_answers)
            value.expected(fmt::format("1 to {} answers", most_answers));
        std::vector<std::string> out;
        for (size_t i = 0; i < value.size(); ++i) out.push_back(answer_of(value.element(i)));
        return out;
    }

    void add(std::string_view text, size_t number) {
        const JsonDocument document(text, printable(task_.path.string(), 200), line_limits, number);
        const JsonNode object = document.object();
        Line line;
        const auto outputs = object.find("outputs");
        const auto answers = outputs ? outputs : object.find("answers");
        if (!answers) {
            std::string near;
            for (const auto &member : object.members()) {
                if (near.empty()) near = did_you_mean(member.first, answer_keys);
            }
            object.fail(
                "expected the key 'outputs' (RULER) or 'answers' (LongBench), found neither" +
                near);
        }
        line.expected = answers_of(*answers);
        const std::string input = object.at("input").text();
        if (object.find("context")) {
            split_template(text_of(object, "context"), input, line);
        } else {
            split_last_line(input, line, number);
            line.text.opening = text_of(object, "answer_prefix");
        }
        if (line.text.question.empty())
            refuse(number, "expected a question after the context, found none");
        line.item = fmt::format("{}", lines_.size());
        line.number = number;
        // Questions about one context are not independent, so they belong to one document.
        line.document = contexts_.emplace(line.text.context, line.item).first->second;
        lines_.push_back(std::move(line));
    }

    // Splits a line in LongBench's form. The task's `prompt` is a template that marks the places of
    // the context and of the question.
    void split_template(const std::string &context, const std::string &input, Line &line) const {
        const size_t c = task_.prompt.find("{context}"), behind = c + 9,
                     i = task_.prompt.find("{input}", behind);
        line.text.context = task_.prompt.substr(0, c) + context;
        line.text.question = task_.prompt.substr(behind, i - behind) + input;
        line.text.opening = task_.prompt.substr(i + 7);
    }

    // Splits a line in RULER's form. The last line of `input` that is not empty is the question.
    // The text before this line is the context.
    void split_last_line(const std::string &input, Line &line, size_t number) const {
        const size_t last = input.find_last_not_of(" \t\r\n");
        const size_t cut = last == std::string::npos ? last : input.rfind('\n', last);
        if (cut == std::string::npos)
            refuse(number,
                   "'input': expected a context, and then the question on a line of its own; found "
                   "only one line");
        line.text.context = input.substr(0, cut + 1);
        line.text.question = input.substr(cut + 1);
    }

    const Task task_;
    const Tokenizer &tokenizer_;
    const PromptForm form_;
    std::vector<Line> lines_;
    std::map<std::string, std::string> contexts_; // maps each context to the first item that has
                                                  // this context
};

} // namespace

std::unique_ptr<TaskItems> make_jsonl_items(const Task &task, const Tokenizer &tokenizer,
                                            const PromptForm &form) {
    return std::make_unique<JsonlItems>(task, tokenizer, form);
}

} // namespace keel::ab
