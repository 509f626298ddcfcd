#pragma once

#include <memory>
#include <optional>
#include <string>

namespace keel::cli {

// Reads lines from standard input. If standard input and output are a terminal, lines can be
// edited, and there is a history, in a file that only the user can read. Only one object may exist
// in a program.
class LineReader {
  public:
    // `history`: the name of the file in the user's state folder ($XDG_STATE_HOME/keel,
    // ~/.local/state/keel). Empty: no history.
    explicit LineReader(const std::string &history);
    ~LineReader();
    LineReader(const LineReader &) = delete;
    LineReader &operator=(const LineReader &) = delete;

    // The next line without its newline, or nullopt at the end of the input. Throws Interrupted on
    // Ctrl-C, and Error(input) for a line of more than one mebibyte or an input that cannot be
    // read. The prompt is only written to a terminal.
    std::optional<std::string> next(const std::string &prompt);
    bool is_terminal() const { return editor_ != nullptr; }

  private:
    struct Editor;
    std::optional<std::string> next_plain();

    std::unique_ptr<Editor> editor_; // NULL if there is no terminal
    std::string pending_;            // was read, but not returned yet
    bool at_end_ = false;
};

} // namespace keel::cli
