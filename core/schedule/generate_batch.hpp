#pragma once

#include "run/generate.hpp"
#include "run/session_batch.hpp"

#include <functional>
#include <optional>
#include <vector>

namespace keel {

struct TextRequest {
    std::vector<int32_t> ids;
    GenerateOptions options;
};

// Generates many texts, Pipeline::batch() of them at once. When one ends, the next prompt begins.
// `next` returns the prompts in order, and nullopt at the end. `done` gets each finished text with
// the number of its prompt, or an Error and an empty result. Both functions may throw to stop. Each
// text is equal to the text that generate() writes in a session of its own, up to the rounding that
// SessionBatch describes. Throws errors that concern all texts, for example a lost device.
void generate_batch(
    SessionBatch &batch, Pipeline &pipeline,
    const std::function<std::optional<TextRequest>()> &next,
    const std::function<void(size_t number, GenerateResult result, const Error *error)> &done);

} // namespace keel
