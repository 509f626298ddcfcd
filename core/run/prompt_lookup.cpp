#include "run/prompt_lookup.hpp"

#include <algorithm>

namespace keel {
namespace {

constexpr int64_t length = 3;  // tokens that must have occurred earlier
constexpr double forget = 0.9; // the weight of older steps in a rate
constexpr int64_t least_steps = 4, longest_pause = 1024;

uint64_t hash_of(const int32_t *tokens) {
    uint64_t hash = 0;
    for (int64_t i = 0; i < length; ++i)
        hash = (hash ^ static_cast<uint32_t>(tokens[i])) * 0x9E3779B97F4A7C15u;
    return hash;
}

} // namespace

// Adds all occurrences that end before index `end`.
void PromptLookup::add(int64_t end) {
    for (added_ = std::max(added_, length); added_ < end; ++added_)
        after_[hash_of(text_.data() + added_ - length)] = added_;
}

std::span<const int32_t> PromptLookup::guess(std::span<const int32_t> text, int32_t next,
                                             int64_t most) {
    if (!text_.empty()) text_.pop_back(); // the token `next` of the call before
    text_.insert(text_.end(), text.begin() + std::ssize(text_), text.end());
    text_.push_back(next);
    const int64_t size = std::ssize(text_);
    add(size);
    if (size < length || most <= 0) return {};
    const auto found = after_.find(hash_of(text_.data() + size - length));
    if (found == after_.end()) return {};
    const int64_t from = found->second;
    // two groups of tokens may have the same hash
    if (!std::equal(text_.end() - length, text_.end(), text_.begin() + from - length)) return {};
    return std::span(text_).subspan(static_cast<size_t>(from),
                                    static_cast<size_t>(std::min(most, size - from)));
}

void GuessGain::count(bool guessed, int64_t tokens, Clock::time_point now) {
    if (last_ != Clock::time_point{}) {
        Rate &rate = guessed ? guessed_ : plain_;
        rate.seconds = rate.seconds * forget + std::chrono::duration<double>(now - last_).count();
        rate.tokens = rate.tokens * forget + static_cast<double>(tokens);
        ++rate.steps;
    }
    last_ = now;
    if (!guessed) {
        pause_ = std::max<int64_t>(pause_ - 1, 0);
        return;
    }
    if (guessed_.steps < least_steps || plain_.steps == 0) return;
    if (guessed_.tokens * plain_.seconds >= plain_.tokens * guessed_.seconds) {
        next_pause_ = 32;
        return;
    }
    pause_ = next_pause_;
    next_pause_ = std::min(2 * next_pause_, longest_pause);
    guessed_ = {};
}

} // namespace keel
