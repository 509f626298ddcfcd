#include "text_input.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "platform/paths.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace keel::cli {
namespace {

constexpr int moment_ms = 300;

std::string without_last_newline(std::string text) {
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    return text;
}

// Reads `fd` to its end. Throws Error(input) if there are more than max_text_bytes. `name` is the
// name of the input in messages.
std::string read_stream(int fd, const std::string &name) {
    std::string text;
    char piece[65536];
    for (;;) {
        const ssize_t n = ::read(fd, piece, sizeof piece);
        if (n == 0) return text;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) throw_error(ErrorKind::input, "{}: cannot read: {}", name, std::strerror(errno));
        text.append(piece, static_cast<size_t>(n));
        if (text.size() > max_text_bytes)
            throw_error(ErrorKind::input,
                        "{}: expected at most {} MiB of text, found more; use a shorter text", name,
                        max_text_bytes >> 20);
    }
}

std::string read_stdin() { return read_stream(STDIN_FILENO, "standard input"); }

// True if the path is a pipe or a device, for example <(command) in a shell, or /dev/stdin. A pipe
// has no size and cannot be mapped.
bool is_stream(const std::string &path) {
    std::error_code ignored;
    const auto status = std::filesystem::status(path, ignored);
    return std::filesystem::is_fifo(status) || std::filesystem::is_character_file(status);
}

std::string read_stream(const std::string &path) {
    const std::string name = printable(path, 400);
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(std::fopen(path.c_str(), "re"),
                                                                std::fclose);
    if (!file) throw_error(ErrorKind::input, "{}: cannot open: {}", name, std::strerror(errno));
    return read_stream(::fileno(file.get()), name);
}

bool is_ready() {
    pollfd fd{STDIN_FILENO, POLLIN, 0};
    int ready = 0;
    do {
        ready = ::poll(&fd, 1, moment_ms);
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
}

} // namespace

std::string read_exact_text(const std::string &path) {
    if (path == "-") return without_last_newline(read_stdin());
    return is_stream(path) ? read_stream(path) : read_text_file(path, max_text_bytes);
}

std::string read_text(const std::string &path) {
    return path == "-" ? read_exact_text(path) : without_last_newline(read_exact_text(path));
}

std::string read_scored_text(const std::string &path) {
    std::string text = read_text(path);
    if (text.empty())
        throw_error(ErrorKind::input, "{}: expected a text to score, found an empty file",
                    path == "-" ? "standard input" : printable(path, 400));
    return text;
}

std::optional<std::string> piped_text(bool wait) {
    struct stat status {};
    if (::fstat(STDIN_FILENO, &status) != 0) return std::nullopt; // standard input is closed
    if (!S_ISFIFO(status.st_mode) && !S_ISREG(status.st_mode) && !S_ISSOCK(status.st_mode))
        return std::nullopt;
    if (!wait && !is_ready()) return std::nullopt;
    std::string text = without_last_newline(read_stdin());
    if (text.empty()) return std::nullopt;
    return text;
}

} // namespace keel::cli
