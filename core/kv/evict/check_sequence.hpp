#pragma once

#include "kv/evict/policy_setup.hpp"

#include <cstdint>

// Checks of a cache that does not come from the steps of this sequence: from a fork's parent, or
// from a saved session.
namespace keel {

// A sequence that is forked into another setup.
struct ForkParent {
    int64_t seen = 0;     // tokens since the start
    int64_t prefix = 0;   // protected slots at the front
    bool evicted = false; // slots are gone from the cache
};
// Throws Error(input) naming the key to change if a cache under `from` cannot go on under `to`.
void check_fork(const PolicySetup &from, const PolicySetup &to, const ForkParent &parent);

// Checks that a loaded cache has the properties on which steps, evictions and truncate() rely.
// `seen` tokens since the start, the newest `tail` of them in all heads. Throws StateReader's error
// if it does not.
void check_lengths(const StateReader &in, const PolicySetup &setup, const KvCache &cache,
                   int64_t seen, int64_t tail);

} // namespace keel
