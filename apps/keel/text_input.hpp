#pragma once

#include <optional>
#include <string>

namespace keel::cli {

// Limit for a text that the program reads.
inline constexpr uint64_t max_text_bytes = uint64_t{256} << 20;

// Reads the text of a file, a pipe or a device; "-" means standard input. Removes one newline at
// the end, because editors and echo add a newline. Throws Error(input) if the text cannot be read
// or has more than max_text_bytes.
std::string read_text(const std::string &path);
// Like read_text(), but a file (not standard input) keeps the newline at its end.
std::string read_exact_text(const std::string &path);
// Like read_text(), for a text on which a model is evaluated. Throws Error(input) with the file's
// name if the text is empty.
std::string read_scored_text(const std::string &path);

// Returns the text that was piped into the program, or nullopt (a terminal or /dev/null counts as
// no pipe). If `wait` is true, waits until text arrives or the pipe is closed. If `wait` is false,
// waits only a moment, because the program that started this program can have left an idle pipe
// open.
std::optional<std::string> piped_text(bool wait);

} // namespace keel::cli
