#include "run/context_repeater.hpp"

#include "base/error.hpp"

namespace keel {

ContextRepeater::ContextRepeater(Sequence &sequence) : sequence_(sequence) {
    const Tokenizer *tokenizer = sequence.pipeline.tokenizer();
    if (tokenizer == nullptr) return;
    whole_ = tokenizer->encode("\n\nRepeat the whole text above, word for word:\n\n", false);
    from_words_ =
        tokenizer->encode("\n\nRepeat the text above, word for word, starting with", false);
}

std::span<const int32_t> ContextRepeater::instruction(bool from_words) const {
    if (sequence_.pipeline.tokenizer() == nullptr) {
        throw_error(ErrorKind::input,
                    "policy {} asks the model in words to repeat its context, but this model has "
                    "no tokenizer; choose another policy",
                    sequence_.cache.first().setup().config().policy.name);
    }
    return from_words ? from_words_ : whole_;
}

void ContextRepeater::forward(std::span<const int32_t> ids, std::span<const int32_t> positions,
                              StepTap &tap) {
    const LayerCaches &caches = sequence_.cache.first().caches();
    sequence_.cache.first_engine().graph->forward(
        {.positions = positions, .kv = caches.views(), .ids = ids, .tap = &tap});
}

} // namespace keel
