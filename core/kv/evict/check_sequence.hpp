#pragma once

#include "kv/evict/policy_setup.hpp"

#include <cstdint>

// Checks of a cache whose content was not computed by this sequence. The content comes from the
// parent of a fork or from a saved session.
namespace keel {

// The state of a sequence that is forked into another setup.
struct ForkParent {
    int64_t seen = 0;     // tokens since the start
    int64_t prefix = 0;   // protected slots at the front
    bool evicted = false; // slots were evicted from the cache
    int64_t to_come = 0;  // at least this many tokens of the prompt are read after the fork
};
// Throws Error(input) that names the key to change if a cache under `from` cannot continue under
// `to`.
void check_fork(const PolicySetup &from, const PolicySetup &to, const ForkParent &parent);

// Checks that a loaded cache has the properties on which steps, evictions and truncate() rely.
// `seen`: the number of tokens since the start. `tail`: the number of the newest tokens that are in
// all heads. Throws the error of StateReader::fail() if the check fails.
void check_lengths(const StateReader &in, const PolicySetup &setup, const KvCache &cache,
                   int64_t seen, int64_t tail);

} // namespace keel
