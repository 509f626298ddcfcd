#pragma once

#include <string_view>

namespace keel::pipeline {

// A value of an enum and its word in a pipeline file.
template <typename E> struct Word {
    E value;
    std::string_view word;
};

// Each enum of the pipeline specializes this template: `static constexpr Word<E> all[]`. Docs and
// messages show the words in this order.
template <typename E> struct Words;

} // namespace keel::pipeline
