#include "text/jinja/arguments.hpp"

#include "base/display.hpp"

#include <algorithm>
#include <fmt/ranges.h>

namespace keel::jinja {

Bound::Bound(std::string what, std::span<const std::string_view> parameters, Arguments arguments)
    : what_(std::move(what)), parameters_(parameters), given_(parameters.size()) {
    if (arguments.positional.size() > parameters.size())
        fail("{} takes at most {} arguments, found {}", what_, parameters.size(),
             arguments.positional.size());
    for (std::size_t i = 0; i < arguments.positional.size(); ++i)
        given_[i] = std::move(arguments.positional[i]);
    for (auto &[name, value] : arguments.named) {
        const auto place = std::ranges::find(parameters, std::string_view(name));
        if (place == parameters.end()) {
            if (parameters.empty())
                fail("{} has no argument '{}'; it takes no arguments", what_, printable(name, 60));
            fail("{} has no argument '{}'; its arguments are {}", what_, printable(name, 60),
                 fmt::join(parameters, ", "));
        }
        auto &slot = given_[static_cast<std::size_t>(place - parameters.begin())];
        if (slot) fail("{} got two values for its argument {}", what_, name);
        slot = std::move(value);
    }
}

bool Bound::flag(std::size_t i, bool otherwise) const {
    return given_[i] ? truth(*given_[i]) : otherwise;
}

std::int64_t Bound::integer(std::size_t i, std::int64_t otherwise) const {
    if (!given_[i] || given_[i]->is(Kind::none)) return otherwise;
    if (!given_[i]->is(Kind::integer) && !given_[i]->is(Kind::boolean))
        fail("{}: expected an integer for {}, found {}", what_, parameters_[i],
             type_name(*given_[i]));
    return given_[i]->integer();
}

Text Bound::text(std::size_t i, std::string_view otherwise) const {
    if (!given_[i] || given_[i]->is(Kind::none)) return Text(std::string(otherwise), false);
    return needed_text(i);
}

const Value &Bound::needed(std::size_t i) const {
    if (!given_[i]) fail("{} needs the argument {}", what_, parameters_[i]);
    return *given_[i];
}

Text Bound::needed_text(std::size_t i) const {
    const Value &value = needed(i);
    if (!value.is(Kind::string))
        fail("{}: expected a string for {}, found {}", what_, parameters_[i], type_name(value));
    return value.text();
}

} // namespace keel::jinja
