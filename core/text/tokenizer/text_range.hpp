#pragma once

#include <cstddef>

namespace keel {

// Half-open byte range of a text.
struct TextRange {
    std::size_t begin = 0;
    std::size_t end = 0;
};

} // namespace keel
