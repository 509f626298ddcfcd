#pragma once

#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <stdexcept>

namespace keel::jinja {

// The limits of one template and of one rendering. A template is not trusted.
struct Limits {
    std::size_t template_bytes = std::size_t{1} << 20;
    std::uint32_t nesting = 150;     // nested statements, parentheses and operators of a template
    std::uint32_t depth = 500;       // nested evaluations, including calls of macros
    std::uint32_t value_depth = 100; // nested lists and dicts
    std::uint64_t steps = 20'000'000;
    // bytes of all values that a rendering makes or reads, added up
    std::uint64_t bytes = std::uint64_t{512} << 20;
    std::uint64_t output_bytes = std::uint64_t{64} << 20;
    std::int64_t range = 100'000; // elements of range(), as in Jinja's sandbox
};

// An error of a template, without its place. Template adds the file and the line.
class Failure : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args &&...args) {
    throw Failure(fmt::format(format, std::forward<Args>(args)...));
}

// Counts the work of a rendering. Each function throws Failure if a limit is exceeded.
class Meter {
  public:
    explicit Meter(const Limits &limits) : limits_(limits) {}

    void steps(std::uint64_t count) {
        steps_ += count;
        if (steps_ > limits_.steps)
            fail("the template needs more than {} steps, which is the limit", limits_.steps);
    }
    // Counts bytes before they are allocated or read.
    void bytes(std::uint64_t count) {
        if (count > limits_.bytes - bytes_)
            fail("the template makes values of more than {} bytes, which is the limit",
                 limits_.bytes);
        bytes_ += count;
    }
    const Limits &limits() const noexcept { return limits_; }

  private:
    Limits limits_;
    std::uint64_t steps_ = 0, bytes_ = 0;
};

} // namespace keel::jinja
