// Code that the tests of sessions share.
#pragma once

#include "run/generate.hpp"

#include <initializer_list>
#include <string>
#include <vector>

namespace keel::test {

using Sets = std::vector<std::string>;

inline Sets tiny(std::initializer_list<std::string> more = {}) {
    Sets sets{std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny", "backend.plugin=cpu",
              "sampling.temperature=0"};
    sets.insert(sets.end(), more);
    return sets;
}

inline const std::string opening =
    "Once upon a time there was a king who had three daughters, and the youngest";

inline GenerateOptions options_of(Pipeline &pipeline, int64_t tokens) {
    GenerateOptions options = generate_options(pipeline.config());
    options.max_tokens = tokens;
    options.ignore_end = true;
    return options;
}

} // namespace keel::test
