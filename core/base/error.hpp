#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace keel {

// What went wrong, from the user's point of view. It decides the exit code of the command line.
enum class ErrorKind {
    usage,    // the command line or an API call asked for something that makes no sense
    input,    // a file (model, YAML, prompt) is missing, broken or does not fit
    plugin,   // a plugin is missing, refused, or failed
    resource, // memory, a cap or a device limit
    runtime,  // the run itself failed: non-finite logits, a lost device
    internal, // Keel broke a promise of its own
};

// The only exception type that Keel's core throws. what() is one line (no newline at the end) that
// names the file, the place, what was expected, what was found and, where there is one, the cure.
class Error : public std::runtime_error {
  public:
    Error(ErrorKind kind, const std::string &message) : std::runtime_error(message), kind_(kind) {}

    ErrorKind kind() const noexcept { return kind_; }
    // 2 for what the user can mend in the request (usage, input, plugin, resource), 1 for the rest.
    int exit_code() const noexcept;

  private:
    ErrorKind kind_;
};

// throw_error(ErrorKind::input, "{}: expected {} bytes, found {}", path, a, b);
template <typename... Args>
[[noreturn]] void throw_error(ErrorKind kind, fmt::format_string<Args...> format, Args &&...args) {
    throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

} // namespace keel
