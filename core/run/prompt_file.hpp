#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// A line of a file of prompts.
struct BatchPrompt {
    std::string id; // written as JSON: "\"a\"", "7"
    std::string prompt;
    std::optional<int64_t> max_tokens;
    std::optional<uint64_t> seed;
};

// Reads the text of a JSONL file. Each line is an object with "id" (a text or an integer, different
// in each line), "prompt", and optionally "max_tokens" and "seed". Empty lines are skipped. `name`:
// the file's name, for messages. Throws Error(input) "NAME:LINE: ...".
std::vector<BatchPrompt> parse_prompts(std::string_view text, const std::string &name);

// A JSONL file of answers. Each answer is written as one line as soon as it is finished. A second
// run continues after the first run: existing lines stay, and their ids count as done. If the
// program was killed, the last line can be incomplete; such a line is removed. The file is locked
// while this object exists.
class AnswerFile {
  public:
    // `settings`: a fingerprint of all settings on which the answers depend. Each line has the
    // fingerprint. Throws Error(input) in three cases: the file is not a file of answers, its
    // answers belong to other prompts or settings, or another run writes to the file.
    AnswerFile(std::string file, const std::vector<BatchPrompt> &prompts, std::string settings);
    ~AnswerFile();
    AnswerFile(const AnswerFile &) = delete;
    AnswerFile &operator=(const AnswerFile &) = delete;

    bool is_done(const BatchPrompt &prompt) const;
    size_t failed() const {
        return failed_;
    } // the number of prompts whose line has an error from
      // an earlier run
    const std::string &settings() const { return settings_; }
    void write(const std::string &line); // writes one JSON object; `line` has no newline

  private:
    void read_done(const std::vector<BatchPrompt> &prompts);

    std::string file_, settings_;
    size_t failed_ = 0;
    int fd_ = -1;
    std::vector<std::string> done_; // ids, sorted
};

} // namespace keel
