#pragma once

#include "program.hpp"

#include "run/generate.hpp"

#include <optional>
#include <string>
#include <vector>

namespace keel::cli {

// A line of a file of prompts.
struct BatchPrompt {
    std::string id; // as JSON: "\"a\"", "7"
    std::string prompt;
    std::optional<int64_t> max_tokens;
    std::optional<uint64_t> seed;
};

// Reads FILE.jsonl ('-': standard input): an object a line, with "id" (a text or an integer, each once), "prompt", and where wanted
// "max_tokens" and "seed"; empty lines are passed over. Throws Error(input) "FILE:LINE: ...".
std::vector<BatchPrompt> read_prompts(const std::string &file);

// Throws Error(usage) where the answers would go into the file that the prompts come from, under whatever name.
void check_apart(const std::string &prompts, const std::string &output);

// Where the results go: FILE.jsonl, an object a line, written as each is finished. What is there already is kept; its ids are done. A
// last line that was cut off, because the program was ended, is taken away. Throws Error(input) for a file that holds something else, or
// answers to other prompts or under other `settings` (a fingerprint, noted in each line), or that another run writes to.
class BatchOutput {
  public:
    BatchOutput(std::string file, const std::vector<BatchPrompt> &prompts, std::string settings);
    ~BatchOutput();
    BatchOutput(const BatchOutput &) = delete;
    BatchOutput &operator=(const BatchOutput &) = delete;

    bool is_done(const BatchPrompt &prompt) const;
    size_t done() const { return done_.size(); }
    size_t failed() const { return failed_; } // of the prompts, those whose line holds an error from before
    const std::string &settings() const { return settings_; }
    void write(const nlohmann::ordered_json &line);

  private:
    void read_done(const std::vector<BatchPrompt> &prompts);

    std::string file_, settings_;
    size_t failed_ = 0;
    int fd_ = -1;
    std::vector<std::string> done_; // ids, sorted
};

// Generates for all prompts that are not done. Returns the exit code: 1 if a prompt could not be answered, now or before.
int run_batch(Pipeline &pipeline, const std::vector<BatchPrompt> &prompts, BatchOutput &output,
              const GenerateOptions &options, const Program &program);

} // namespace keel::cli
