#pragma once

#include <cstddef>

namespace keel {

// A byte range of a text. `begin` is part of the range, `end` is not.
struct TextRange {
    std::size_t begin = 0;
    std::size_t end = 0;
};

} // namespace keel
