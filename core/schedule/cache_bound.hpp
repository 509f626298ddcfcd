#pragma once

#include "run/pipeline.hpp"

#include <cstdint>
#include <string>

namespace keel {

// The most bytes that the cache of a sequence and the memory of its policy can take.
struct CacheBound {
    uint64_t prompt = 0; // until the prompt's end
    uint64_t text = 0;   // after the prompt's end
    // With several texts for one prompt: the bytes that each further text adds after the prompt's
    // end.
    uint64_t further = 0;

    uint64_t after_prompt(int64_t choices) const {
        return text + static_cast<uint64_t>(choices - 1) * further;
    }
    uint64_t peak(int64_t choices) const { return std::max(prompt, after_prompt(choices)); }
};

// The bound of a sequence with `prompt` tokens to which `more` tokens are added. `pinned`: the
// number of prompt tokens that the sequence pins.
//
// If the policy has a budget in tokens or MiB and acts between chunks, the bound is budget, slack
// and a chunk. If it acts at the prompt's end, the whole prompt is held until then. If the policy
// evicts nothing, the bound is all tokens.
CacheBound cache_bound(const Pipeline &pipeline, const PolicySetup &plan, int64_t prompt,
                       int64_t more, int64_t pinned);

// Throws Error(usage) if the prompt has more tokens than the cache can hold until the policy acts.
void check_prompt_fits(const PolicySetup &plan, int64_t prompt);

} // namespace keel
