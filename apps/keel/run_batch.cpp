#include "run_batch.hpp"

#include "console.hpp"
#include "interrupt.hpp"
#include "run_report.hpp"
#include "text_input.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "schedule/generate_batch.hpp"

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

using Json = nlohmann::ordered_json;

} // namespace

std::vector<BatchPrompt> read_prompts(const std::string &file) {
    return parse_prompts(read_text(file), file == "-" ? "standard input" : file);
}

void check_apart(const std::string &prompts, const std::string &output) {
    std::error_code error; // errors are ignored, because a file that does not exist cannot be the
                           // same as the second file
    if (prompts != "-" && std::filesystem::equivalent(prompts, output, error))
        throw_error(
            ErrorKind::usage,
            "--output {}: this is the file of --prompts; choose another file for the answers",
            printable(output, 400));
}

namespace {

// Writes the answer lines of a run, and counts them.
class Answers {
  public:
    Answers(Pipeline &pipeline, AnswerFile &output)
        : pipeline_(pipeline), output_(output), start_(std::chrono::steady_clock::now()) {}

    void skip() { ++skipped_; }

    void write(const BatchPrompt &prompt, const GenerateResult &result) {
        // An interrupted answer is incomplete, so the program does not write this answer.
        if (result.reason == StopReason::cancelled) throw Interrupted{};
        if (result.reason == StopReason::device_lost)
            throw_error(ErrorKind::runtime, "{}", result.detail);
        Json line = line_of(prompt), whole = result_json(pipeline_, prompt.prompt, result);
        for (const char *key : {"text", "ids", "stop", "logprobs"}) {
            if (whole.contains(key)) line[key] = std::move(whole[key]);
        }
        line["seconds"] = result.stats.prefill_seconds + result.stats.decode_seconds;
        line["prompt_tokens"] = result.stats.prefill_tokens;
        output_.write(line.dump(-1, ' ', false, Json::error_handler_t::replace));
        tokens_ += result.ids.size();
        ++answered_;
    }

    // If a prompt does not fit, writes a line with the error, and the run continues. An error that
    // is not about the length of the prompt ends the run.
    void write(const BatchPrompt &prompt, const Error &error) {
        if (error.kind() != ErrorKind::resource && error.kind() != ErrorKind::usage) throw error;
        Json line = line_of(prompt);
        line["error"] = error.what();
        output_.write(line.dump(-1, ' ', false, Json::error_handler_t::replace));
        ++failed_;
    }

    int finish(const Program &program) const {
        console().clear_progress();
        if (!program.quiet) console().faint(text() + "\n");
        return failed_ + output_.failed() > 0 ? 1 : 0;
    }

  private:
    Json line_of(const BatchPrompt &prompt) const {
        return {{"id", Json::parse(prompt.id)},
                {"prompt", prompt.prompt},
                {"settings", output_.settings()}};
    }

    std::string text() const {
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
        std::string text = fmt::format("{} prompt{} answered, {} tokens written in {:.1f} s",
                                       answered_, answered_ == 1 ? "" : "s", tokens_, seconds);
        if (skipped_ > 0) text += fmt::format(" | {} were answered in an earlier run", skipped_);
        if (failed_ > 0)
            text += fmt::format(" | {} failed; their lines have the key \"error\"", failed_);
        if (output_.failed() > 0)
            text += fmt::format(" | {} failed in an earlier run", output_.failed());
        return text;
    }

    Pipeline &pipeline_;
    AnswerFile &output_;
    std::chrono::steady_clock::time_point start_;
    size_t answered_ = 0, failed_ = 0, skipped_ = 0;
    uint64_t tokens_ = 0;
};

GenerateOptions options_of(const BatchPrompt &prompt, const GenerateOptions &options) {
    GenerateOptions own = options;
    own.max_tokens = prompt.max_tokens.value_or(options.max_tokens);
    own.sampling.seed = prompt.seed.value_or(options.sampling.seed);
    return own;
}

void answer_one_by_one(Pipeline &pipeline, std::span<const BatchPrompt *const> prompts,
                       const GenerateOptions &options, size_t skipped, Answers &answers) {
    Session session(pipeline);
    for (size_t i = 0; i < prompts.size(); ++i) {
        const BatchPrompt &prompt = *prompts[i];
        console().progress("prompts", skipped + i, skipped + prompts.size(), Console::Unit::items);
        check_interrupt();
        session.reset();
        GenerateResult result;
        try {
            result = generate(session, pipeline.tokenizer()->encode(prompt.prompt),
                              options_of(prompt, options));
        } catch (const Error &error) {
            answers.write(prompt, error);
            continue;
        }
        answers.write(prompt, result);
    }
}

void answer_at_once(Pipeline &pipeline, std::span<const BatchPrompt *const> prompts,
                    const GenerateOptions &options, size_t skipped, Answers &answers) {
    SessionBatch batch(pipeline);
    size_t begun = 0, ended = 0;
    const auto next = [&]() -> std::optional<TextRequest> {
        check_interrupt();
        if (begun == prompts.size()) return std::nullopt;
        const BatchPrompt &prompt = *prompts[begun++];
        return TextRequest{pipeline.tokenizer()->encode(prompt.prompt),
                           options_of(prompt, options)};
    };
    const auto done = [&](size_t number, const GenerateResult &result, const Error *error) {
        console().progress("prompts", skipped + ++ended, skipped + prompts.size(),
                           Console::Unit::items);
        if (error != nullptr) {
            answers.write(*prompts[number], *error);
        } else {
            answers.write(*prompts[number], result);
        }
    };
    console().progress("prompts", skipped, skipped + prompts.size(), Console::Unit::items);
    generate_batch(batch, pipeline, next, done);
}

} // namespace

int run_batch(Pipeline &pipeline, const std::vector<BatchPrompt> &prompts, AnswerFile &output,
              const GenerateOptions &options, const Program &program) {
    Answers answers(pipeline, output);
    std::vector<const BatchPrompt *> left;
    for (const BatchPrompt &prompt : prompts) {
        if (output.is_done(prompt)) {
            answers.skip();
        } else {
            left.push_back(&prompt);
        }
    }
    const size_t skipped = prompts.size() - left.size();
    if (pipeline.batch() > 1) {
        answer_at_once(pipeline, left, options, skipped, answers);
    } else {
        answer_one_by_one(pipeline, left, options, skipped, answers);
    }
    return answers.finish(program);
}

} // namespace keel::cli
