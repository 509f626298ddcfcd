#include "console.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sys/ioctl.h>
#include <unistd.h>

namespace keel::cli {
namespace {

constexpr auto first_bar = std::chrono::milliseconds(250);
constexpr auto next_bar = std::chrono::milliseconds(50);
constexpr std::string_view clear_line = "\r\x1b[K";

// Writes the whole text, in several parts if the system takes only a part at a time. Returns 0 or
// errno.
int write_all(int fd, std::string_view text) noexcept {
    while (!text.empty()) {
        const ssize_t n = ::write(fd, text.data(), text.size());
        if (n >= 0) {
            text.remove_prefix(static_cast<size_t>(n));
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

bool is_dumb() {
    const char *term = std::getenv("TERM");
    return term == nullptr || std::strcmp(term, "dumb") == 0;
}

size_t columns() noexcept {
    winsize size{};
    if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}

std::string amount(uint64_t done, uint64_t total, Console::Unit unit) {
    if (unit == Console::Unit::tokens) return fmt::format("{} of {} tokens", done, total);
    if (unit == Console::Unit::items) return fmt::format("{} of {}", done, total);
    return fmt::format("{} of {}", format_bytes(done), format_bytes(total));
}

} // namespace

Console::Console()
    : out_is_terminal_(::isatty(STDOUT_FILENO) == 1),
      err_is_terminal_(::isatty(STDERR_FILENO) == 1), bars_(err_is_terminal_ && !is_dumb()) {}

void Console::write_err(std::string_view text) noexcept { write_all(STDERR_FILENO, text); }

void Console::out(std::string_view text) {
    if (text.empty()) return;
    const std::lock_guard lock(mutex_);
    clear_locked();
    if (const int error = write_all(STDOUT_FILENO, text); error == EPIPE) {
        line_open_ = false;
        throw OutputClosed{};
    } else if (error != 0) {
        line_open_ = false;
        throw_error(ErrorKind::runtime, "standard output: cannot write: {}", std::strerror(error));
    }
    line_open_ = text.back() != '\n';
}

void Console::end_line() noexcept {
    const std::lock_guard lock(mutex_);
    if (line_open_) write_all(STDOUT_FILENO, "\n");
    line_open_ = false;
}

void Console::message(std::string_view head, std::string_view text, int colour) noexcept {
    const std::lock_guard lock(mutex_);
    clear_locked();
    // If the last line on the same screen is not complete, the message begins on a new line.
    if (line_open_ && out_is_terminal_ && err_is_terminal_) {
        write_err("\n");
        line_open_ = false;
    }
    std::string line;
    const bool coloured = colour != 0 && err_is_terminal_ && !is_dumb();
    if (coloured) line += fmt::format("\x1b[{}m", colour);
    line.append(head);
    if (coloured) line += "\x1b[0m";
    line.append(text).append("\n");
    write_err(line);
}

void Console::faint(std::string_view text) noexcept {
    const std::lock_guard lock(mutex_);
    clear_locked();
    const bool faint = err_is_terminal_ && !is_dumb();
    const bool ends_line = text.ends_with('\n');
    if (ends_line) text.remove_suffix(1);
    if (faint) write_err("\x1b[2m");
    write_err(text);
    if (faint) write_err("\x1b[0m");
    if (ends_line) write_err("\n");
}

void Console::progress(std::string_view what, uint64_t done, uint64_t total, Unit unit,
                       uint64_t found) noexcept {
    const std::lock_guard lock(mutex_);
    if (!bars_ || total == 0) return;
    const auto now = Clock::now();
    if (bar_what_ != what) {
        clear_locked();
        bar_what_ = what;
        bar_start_ = now;
        return;
    }
    if (now - bar_start_ < first_bar || now - bar_drawn_ < next_bar) return;
    if (done >= total) return clear_locked();
    bar_drawn_ = now;
    const double share = static_cast<double>(done) / static_cast<double>(total);
    std::string tail = fmt::format(" {:3.0f} %  {}", 100 * share, amount(done, total, unit));
    if (const auto here = static_cast<double>(done - std::min(done, found)),
        to_do = static_cast<double>(total - std::min(total, found));
        here > 0.02 * to_do) {
        const double passed = std::chrono::duration<double>(now - bar_start_).count();
        tail += fmt::format(", {:.0f} s left", passed * static_cast<double>(total - done) / here);
    }
    const size_t width = columns();
    std::string line = fmt::format("{:<8}", what);
    constexpr size_t cells = 24; // a fixed number, so that the length of the bar does not change
    if (line.size() + tail.size() + cells + 8 <= width) {
        const auto full = static_cast<size_t>(share * static_cast<double>(cells));
        line += fmt::format(" [{}{}]", std::string(full, '#'), std::string(cells - full, '.'));
    }
    line += tail;
    if (line.size() >= width) line.resize(width - 1);
    // Overwrites the old line and then clears the rest of the line. This order avoids flicker.
    write_err(std::string("\r") + line + "\x1b[K");
    bar_shown_ = true;
}

void Console::clear_progress() noexcept {
    const std::lock_guard lock(mutex_);
    clear_locked();
    bar_what_.clear();
}

void Console::clear_locked() noexcept {
    if (bar_shown_) write_err(clear_line);
    bar_shown_ = false;
}

Console &console() {
    // the console is never destroyed, because plugins can log while the program ends
    static auto *const one = new Console;
    return *one;
}

} // namespace keel::cli
