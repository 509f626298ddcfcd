#pragma once

#include <optional>
#include <string>

namespace keel::cli {

inline constexpr uint64_t max_text_bytes = uint64_t{256} << 20;

// The text of a file, a pipe or a device; "-": of standard input. One newline at the end is
// removed, because editors and echo add one. Throws Error(input) if the text cannot be read or has
// more than max_text_bytes.
std::string read_text(const std::string &path);
// The same for a text on which a model is evaluated. If it is empty, throws Error(input) with the
// file's name.
std::string read_scored_text(const std::string &path);

// The text that was piped into the program, if any (a terminal or /dev/null counts as none).
// `wait`: waits until text arrives or the pipe is closed. Otherwise it waits only a moment, because
// a program that started this one may have left an idle pipe there.
std::optional<std::string> piped_text(bool wait);

} // namespace keel::cli
