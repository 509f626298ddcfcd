#pragma once

#include "base/error.hpp"
#include "base/location.hpp"

#include <string>
#include <utility>

namespace keel {

// The key of a value, and the place where the value was written. An empty place means a default.
struct Origin {
    std::string key; // for example "policy.budget.tokens"
    SourceLocation where;

    bool is_default() const noexcept { return where.file.empty(); }
};

} // namespace keel
