#pragma once

#include "run/generate.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace keel {

// The settings of a request's policy: keys of the pipeline file's section `policy`, without the
// section's name, and their values. `name` stands for `plugin`.
using PolicyChoice = std::vector<std::pair<std::string, std::string>>;

// A part of the result of one choice.
struct TextEvent {
    enum class Kind {
        text,  // a token was generated
        end,   // the choice has ended: `reason` and `detail` are set
        failed // the choice has failed: `error_kind` and `detail` are set
    };
    Kind kind = Kind::text;
    int64_t choice = 0;
    TextPiece piece;
    StopReason reason = StopReason::max_tokens;
    ErrorKind error_kind = ErrorKind::runtime;
    std::string detail;
};

// The numbers of one request.
struct RequestUsage {
    uint64_t prompt_tokens = 0;    // counted once, also if there are several choices
    uint64_t generated_tokens = 0; // of all choices
    uint64_t cached_tokens = 0;    // prompt tokens that were taken from an earlier request's cache
    // The next five are of the first choice. kept_tokens: slots in use at the end, of the head that
    // holds the most. evicted_tokens: slots that the head with the most losses lost.
    uint64_t kept_tokens = 0, evicted_tokens = 0, evictions = 0;
    uint64_t cache_peak_bytes = 0; // keys and values, and the memory of the policy
    double policy_seconds = 0;     // time in evictions
    double queue_seconds = 0;      // from submit() to the first step
    double prompt_seconds = 0;     // from the first step to the first token
    double generation_seconds = 0; // from the first token to the end
    std::string policy;            // the name of the policy
};

// A text that a client wants, or several texts for one prompt.
struct TextOrder {
    std::vector<int32_t> prompt;
    GenerateOptions options; // the scheduler replaces the callbacks
    int64_t choices = 1;
    std::optional<PolicyChoice> policy;               // nullopt: the policy of the pipeline's file
    std::vector<std::pair<int64_t, int64_t>> protect; // ranges of the prompt that are never evicted
    // If set, on_prompt gets the probabilities of each prompt token but the first, with this number
    // of most likely tokens.
    std::optional<int64_t> prompt_logprobs;
    // Callbacks, run in the scheduler's thread. If one throws, the request is cancelled, and only
    // on_done is called afterwards.
    std::function<void(std::vector<TokenLogprobs>)> on_prompt; // before the first event
    std::function<void(TextEvent)> on_event;
    std::function<void(RequestUsage)> on_done; // after the last event
};

} // namespace keel
