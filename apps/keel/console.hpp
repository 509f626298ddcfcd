#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace keel::cli {

// Thrown if the reader of standard output has closed the pipe (`keel ... | head`). The program then
// ends without a message.
struct OutputClosed {};

// The two output streams of the program. Results go to standard output. Messages, progress and the
// closing line go to standard error. The progress bar and the messages share a screen, so both must
// use this class. Thread-safe, because plugins log from their own threads.
class Console {
  public:
    enum class Unit { bytes, tokens, items };

    Console();
    Console(const Console &) = delete;
    Console &operator=(const Console &) = delete;

    bool out_is_terminal() const noexcept { return out_is_terminal_; }
    bool err_is_terminal() const noexcept { return err_is_terminal_; }

    // Writes to standard output immediately. Throws OutputClosed, or Error(runtime) if the text
    // cannot be written.
    void out(std::string_view text);
    // If the last line on standard output is not complete, ends it with a newline. Never throws.
    void end_line() noexcept;
    // Writes one line to standard error: `head`, then `text`. `colour` is an SGR colour number. On
    // a terminal, `head` has this colour; 0 means no colour.
    void message(std::string_view head, std::string_view text, int colour = 0) noexcept;
    // Writes text to standard error without changes. On a terminal the text is faint.
    void faint(std::string_view text) noexcept;

    // Draws a progress bar if standard error is a terminal. The bar appears after a moment, so
    // short work shows no bar. The bar is updated at most twenty times a second. The remaining time
    // is estimated from the speed so far. `found` is the part of `done` that was finished before
    // this process began. `found` does not count for the speed.
    void progress(std::string_view what, uint64_t done, uint64_t total, Unit unit,
                  uint64_t found = 0) noexcept;
    void clear_progress() noexcept;
    void hide_progress() noexcept { bars_ = false; }

  private:
    using Clock = std::chrono::steady_clock;
    void clear_locked() noexcept;
    void write_err(std::string_view text) noexcept;

    std::mutex mutex_;
    bool out_is_terminal_, err_is_terminal_, bars_;
    bool line_open_ = false; // the last line on standard output is not complete
    bool bar_shown_ = false;
    std::string bar_what_;
    Clock::time_point bar_start_{}, bar_drawn_{};
};

// The only console of the program.
Console &console();

} // namespace keel::cli
