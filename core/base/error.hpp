#pragma once

#include "base/location.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace keel {

// The kind of an error, from the user's point of view. It decides the exit code of the command
// line.
enum class ErrorKind {
    usage,    // the command line or the arguments of an API call are invalid
    input,    // a file (model, YAML, prompt) is missing, is broken or does not fit
    plugin,   // a plugin is missing, was refused, or failed
    resource, // memory, a limit of the config, or a limit of the device
    runtime,  // the run itself failed: non-finite logits, a lost device
    internal, // Keel has a bug
};

// The only exception type that Keel's core throws. what() is one line without a newline at the end.
// It names the file, the place, the expected value and the found value. If there is a remedy, it
// names the remedy.
class Error : public std::runtime_error {
  public:
    Error(ErrorKind kind, const std::string &message) : std::runtime_error(message), kind_(kind) {}

    ErrorKind kind() const noexcept { return kind_; }
    // The exit code: 2 for errors that the user can fix in the request (usage, input, plugin,
    // resource), 1 for all other errors.
    int exit_code() const noexcept;

  private:
    ErrorKind kind_;
};

// An error about the value of a config key. Its message is "KEY: TEXT". The code that knows the
// place of the key in the config adds the place.
class KeyError : public Error {
  public:
    KeyError(ErrorKind kind, std::string key, std::string text)
        : Error(kind, key + ": " + text), key_(std::move(key)), text_(std::move(text)) {}

    const std::string &key() const noexcept { return key_; }   // for example "policy.budget.tokens"
    const std::string &text() const noexcept { return text_; } // the message without the key

  private:
    std::string key_, text_;
};

// An error about a place in a config. Its message is "FILE:LINE:COLUMN: TEXT".
class PlacedError : public Error {
  public:
    PlacedError(ErrorKind kind, SourceLocation where, std::string text)
        : Error(kind, to_string(where) + ": " + text), where_(std::move(where)),
          text_(std::move(text)) {}

    const SourceLocation &where() const noexcept { return where_; }
    const std::string &text() const noexcept { return text_; } // the message without the place

  private:
    SourceLocation where_;
    std::string text_;
};

// Example: throw_error(ErrorKind::input, "{}: expected {} bytes, found {}", path, a, b);
template <typename... Args>
[[noreturn]] void throw_error(ErrorKind kind, fmt::format_string<Args...> format, Args &&...args) {
    throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// Example:
// throw_key_error(ErrorKind::input, "policy.budget.tokens", "expected 1 or more, found {}", n);
template <typename... Args>
[[noreturn]] void throw_key_error(ErrorKind kind, std::string_view key,
                                  fmt::format_string<Args...> format, Args &&...args) {
    throw KeyError(kind, std::string(key), fmt::format(format, std::forward<Args>(args)...));
}

// Example: throw_at(setting.where, ErrorKind::input, "expected 1 or more, found {}", n);
template <typename... Args>
[[noreturn]] void throw_at(const SourceLocation &where, ErrorKind kind,
                           fmt::format_string<Args...> format, Args &&...args) {
    throw PlacedError(kind, where, fmt::format(format, std::forward<Args>(args)...));
}

} // namespace keel
