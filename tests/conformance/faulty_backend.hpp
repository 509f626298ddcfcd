#pragma once

#include <keel/plugin.h>

namespace keel::conformance {

// Ways in which a backend may break the contract; each must be found.
enum class Fault {
    nothing,
    one_wrong_size,      // matmul: one element is off by 1e-4 when n is 33
    slightly_off,        // rms_norm: everything is off by 3e-5 of itself
    writes_past_the_end, // scale: one element behind the last one
    writes_between_rows, // copy: the first byte of the gap between two rows
    writes_to_input,     // add: the first operand
    hides_nan,           // add: NaN becomes 0
    ignores_features,    // silu_mul: unknown bits are masked away
    refuses_late,        // softmax: refuses a stride after having written
    reads_beyond_length, // attention: slots of the block beyond a head's length are attended to
    ignores_block_table, // kv_append: takes block h for head h
    ignores_scales,      // cast: of a block type, the last block's scale is that of the first
    casts_any_type,      // cast: what the header does not name is done all the same
    accepts_any_ticket,
    writes_whole_out_struct, // ctx_info: of an older peer
    leaks_buffers,
    refuses_newer_host,
    settles_rows, // scale: the plan's number of rows is taken for the call's
    swaps_ties,   // argmax_rows: the highest place wins a tie
};

// The reference with one fault. The choice is global: one faulty backend at a time.
const keel_plugin *faulty_plugin(Fault fault);

} // namespace keel::conformance
