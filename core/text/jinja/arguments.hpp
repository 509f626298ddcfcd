#pragma once

#include "text/jinja/evaluator.hpp"

#include <optional>
#include <span>
#include <string_view>

namespace keel::jinja {

// The arguments of a built-in, in the order of its parameters. Throws Failure if there are too many
// arguments, if a name is unknown, or if an argument has the wrong type.
class Bound {
  public:
    // `what`: for messages, such as "the filter join".
    Bound(std::string what, std::span<const std::string_view> parameters, Arguments arguments);

    const Value *operator[](std::size_t i) const { return given_[i] ? &*given_[i] : nullptr; }
    // The next functions give `otherwise` if the argument is absent. integer() and text() also do
    // so if the argument is none.
    bool flag(std::size_t i, bool otherwise) const;
    std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
    Text text(std::size_t i, std::string_view otherwise) const;
    const Value &needed(std::size_t i) const; // throws Failure if the argument is absent
    Text needed_text(std::size_t i) const;

  private:
    std::string what_;
    std::span<const std::string_view> parameters_;
    std::vector<std::optional<Value>> given_;
};

} // namespace keel::jinja
