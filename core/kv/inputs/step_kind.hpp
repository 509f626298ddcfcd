#pragma once

namespace keel {

// A step is one forward pass.
enum class StepKind {
    prefill_chunk, // more of the prompt follows
    prefill_pause, // a part of a prompt; the prompt can continue or end after this step
    prefill_end,   // the last chunk of a prompt
    decode,
};

} // namespace keel
