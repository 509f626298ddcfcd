// The texts of the kernel files, in the order of the enum Source.
#include "kernel_files.hpp"
#include "opencl/kernel_cache.hpp"

namespace keel_opencl {

const char *const types_text = types_cl.data();

const SourceText source_texts[source_count] = {
    {"linear.cl", linear_cl.data()},
    {"norm.cl", norm_cl.data()},
    {"elementwise.cl", elementwise_cl.data()},
    {"move.cl", move_cl.data()},
    {"rows.cl", rows_cl.data()},
    {"rope.cl", rope_cl.data()},
    {"kv.cl", kv_cl.data()},
    {"attention.cl", attention_cl.data()},
    {"attention_reduce.cl", attention_reduce_cl.data()},
    {"policy_inputs.cl", policy_inputs_cl.data()},
};

} // namespace keel_opencl
