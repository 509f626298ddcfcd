#pragma once

#include <memory>
#include <optional>
#include <string>

namespace keel::cli {

// Lines from standard input. Where that and standard output are a terminal: with editing and a
// history, which is kept in a file that only the user can read; else as they come. One at a time in
// a program.
class LineReader {
  public:
    // `history`: the name of the file in the user's state folder ($XDG_STATE_HOME/keel,
    // ~/.local/state/keel); empty: none is kept.
    explicit LineReader(const std::string &history);
    ~LineReader();
    LineReader(const LineReader &) = delete;
    LineReader &operator=(const LineReader &) = delete;

    // The next line, without its end; nullopt at the end of the input. Throws Interrupted for a
    // Ctrl-C while it waits, Error(input) for a line of more than a mebibyte or an input that
    // cannot be read. What the prompt says goes to the terminal alone.
    std::optional<std::string> next(const std::string &prompt);
    bool is_terminal() const { return editor_ != nullptr; }

  private:
    struct Editor;
    std::optional<std::string> next_plain();

    std::unique_ptr<Editor> editor_; // NULL: no terminal
    std::string pending_;            // read, and not handed out yet
    bool at_end_ = false;
};

} // namespace keel::cli
