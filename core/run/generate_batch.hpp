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

// Generates many texts, Pipeline::batch() of them at once: where one ends the next prompt begins.
// `next` gives the prompts in order; none: there are no more. `done` gets each text as it is
// finished, with its prompt's number, or what went wrong with it (Error; the result is empty then);
// both may throw to stop. Each text is what generate() writes in a session of its own, up to the
// rounding that SessionBatch tells of. Throws what fails for all, a lost device for example.
void generate_batch(
    SessionBatch &batch, Pipeline &pipeline,
    const std::function<std::optional<TextRequest>()> &next,
    const std::function<void(size_t number, GenerateResult result, const Error *error)> &done);

} // namespace keel
