#include "run/context_repeater.hpp"

#include "base/error.hpp"
#include "text/chat_template.hpp"

#include <algorithm>

namespace keel {

ContextRepeater::ContextRepeater(Sequence &sequence) : sequence_(sequence) {
    const Tokenizer *tokenizer = sequence.pipeline.tokenizer();
    if (tokenizer == nullptr) return;
    const keel_policy_needs &needs = sequence.cache.first().setup().needs();
    if (has_flag(needs, KEEL_POLICY_KVPRESS_WORDS)) {
        take_kvpress_words(*tokenizer);
        return;
    }
    whole_ = tokenizer->encode("\n\nRepeat the whole text above, word for word:\n\n", false);
    from_words_ =
        tokenizer->encode("\n\nRepeat the text above, word for word, starting with", false);
}

// kvpress renders a question with the model's chat template. The text before the question is the
// prefix. The text after the question is the opening.
void ContextRepeater::take_kvpress_words(const Tokenizer &tokenizer) {
    whole_ = tokenizer.encode("\n\nRepeat the previous context exactly.", false);
    from_words_ = tokenizer.encode(
        "\n\nRepeat the part of the previous context exactly, starting with", false);
    const auto &path = sequence_.pipeline.config().model.path;
    const FoundChatTemplate found = load_chat_template(*path);
    if (!found.has_template()) {
        opening_ = tokenizer.encode("\n", false);
        return;
    }
    try {
        const ChatTemplate chat = found.open();
        const ChatTemplate::Frame frame = chat.frame(tokenizer, std::nullopt);
        prefix_ = chat.encode(tokenizer, frame.before, false);
        opening_ = chat.encode(tokenizer, frame.after, true);
    } catch (const Error &error) {
        throw_error(ErrorKind::input,
                    "policy {}: compat: kvpress needs the end of a question in the model's chat "
                    "template, and the template failed; remove compat: {}",
                    sequence_.cache.first().setup().config().policy.name, error.what());
    }
}

int64_t ContextRepeater::skipped() const {
    const auto tokens = this->tokens();
    const bool starts = std::ssize(tokens) > std::ssize(prefix_) &&
                        std::equal(prefix_.begin(), prefix_.end(), tokens.begin());
    return starts ? std::ssize(prefix_) : 0;
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
