#pragma once

#include <cstdint>
#include <string>

namespace keel {

// A move of a sequence to another backend of a hybrid. If the move fails, the sequence stays on its
// backend.
struct BackendMove {
    enum class Why {
        phase,    // prefill and decode run on different backends
        tokens,   // hybrid.switch.after_tokens
        pressure, // memory is short
        command,  // the user asked for the move
        lost,     // the device of the old backend was lost
    };
    Why why = Why::phase;
    std::string from, to; // names of hybrid.backends
    int64_t tokens = 0;   // tokens in the sequence at the time of the move
    uint64_t bytes = 0;   // bytes of the moved keys and values, in the types of the new backend
    double milliseconds = 0;
    int64_t warmup_tokens = 0; // dummy tokens that the new backend ran before the move
    int64_t reread_tokens = 0; // tokens that were computed again because the cache was lost
    std::string refused;       // why the sequence stayed; empty if the sequence moved
};
const char *move_reason_name(BackendMove::Why why); // "phase"
// Describes a move for users: "a -> b after 256 tokens (switch.after_tokens): 3.1 MiB in 4.0 ms, 8
// warm-up tokens".
std::string move_text(const BackendMove &move);

} // namespace keel
