#pragma once

#include <memory>
#include <optional>
#include <string>

namespace keel::cli {

// Reads lines from standard input. If standard input and output are a terminal, the user can edit
// lines. On a terminal there is also a history, in a file that only the user can read. Only one
// LineReader may exist in a program.
class LineReader {
  public:
    // `history` is the name of the history file in the user's state folder ($XDG_STATE_HOME/keel or
    // ~/.local/state/keel). With an empty name there is no history.
    explicit LineReader(const std::string &history);
    ~LineReader();
    LineReader(const LineReader &) = delete;
    LineReader &operator=(const LineReader &) = delete;

    // Returns the next line without its newline, or nullopt at the end of the input. Writes
    // `prompt` only to a terminal. Throws Interrupted on Ctrl-C. Throws Error(input) if a line has
    // more than one mebibyte, or if the input cannot be read.
    std::optional<std::string> next(const std::string &prompt);
    bool is_terminal() const { return editor_ != nullptr; }

  private:
    struct Editor;
    std::optional<std::string> next_plain();

    std::unique_ptr<Editor> editor_; // NULL if input or output is not a terminal
    std::string pending_;            // text that was read but not returned yet
    bool at_end_ = false;
};

} // namespace keel::cli
