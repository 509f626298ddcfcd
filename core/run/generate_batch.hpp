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
// `next` gives the prompts in order; none: there are no more. `done` gets each finished text with
// its prompt's number, or an Error and an empty result. Both may throw to stop. Each text is the
// one that generate() writes in its own session, up to the rounding that SessionBatch describes.
// Throws errors that concern all texts, for example a lost device.
void generate_batch(
    SessionBatch &batch, Pipeline &pipeline,
    const std::function<std::optional<TextRequest>()> &next,
    const std::function<void(size_t number, GenerateResult result, const Error *error)> &done);

} // namespace keel
