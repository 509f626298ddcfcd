#pragma once

#include <keel/plugin.h>

namespace keel::conformance {

// Ways in which a backend may break the contract. The checker must find each of them.
enum class Fault {
    nothing,
    one_wrong_size,      // matmul: one element is off by 1e-4 if n is 33
    slightly_off,        // rms_norm: each element is off by 3e-5 of its value
    writes_past_the_end, // scale: writes one element after the last one
    writes_between_rows, // copy: writes the first byte of the gap between two rows
    writes_to_input,     // add: writes to the first operand
    hides_nan,           // add: NaN becomes 0
    ignores_features,    // silu_mul: ignores unknown feature bits
    refuses_late,        // softmax: refuses a stride after it has written
    reads_beyond_length, // attention: also sees slots of the block after a head's length
    ignores_block_table, // kv_append: uses block h for head h
    ignores_scales,      // cast from a block type: the last block gets the scale of the first
    casts_any_type,      // cast: also casts type pairs that the header does not list
    accepts_any_ticket,
    // ctx_info: writes the whole struct, although an older peer's struct is shorter
    writes_whole_out_struct,
    leaks_buffers,
    refuses_newer_host,
    settles_rows,          // scale: uses the plan's number of rows instead of the call's
    swaps_ties,            // argmax_rows: of equal values, the last one wins
    dense_sees_later_keys, // keel.attention_dense/1: forward ignores KEEL_DENSE_CAUSAL
    dense_drops_others,    // keel.attention_dense/1: backward drops other weights than forward
    dense_takes_any_scale, // keel.attention_dense/1: a scale of NaN counts as 1
};

// Returns the reference backend with one fault. The fault is a global setting, so only one faulty
// backend can be used at a time.
const keel_plugin *faulty_plugin(Fault fault);

} // namespace keel::conformance
