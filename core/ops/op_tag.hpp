#pragma once

#include <cstdint>
#include <string>

namespace keel {

// The form of a step that an op is planned for.
enum class StepForm : uint8_t {
    none,    // the op belongs to no step
    decode,  // one token
    prefill, // several tokens of one sequence, or a mix of sequences
    batch,   // one token of each of several sequences
};

// What an op does in a model or for a cache. Each role has a name in op_tag.cpp.
enum class Role : uint8_t {
    // Ops of a step, in the order in which they run.
    embed,
    attention_norm,
    qkv,
    q_norm, // over all heads together
    k_norm,
    query_scale,
    qkv_prepare,
    tapped_qkv_prepare, // replaces qkv_prepare if the op also writes by-products for a policy
    attention,
    tapped_attention, // replaces attention if the op also writes by-products for a policy
    attention_out,
    post_attention_norm,
    attention_add,
    ffn_norm,
    shared_gate_up, // of the expert that all tokens use
    shared_activation,
    shared_router,
    shared_choice,
    router,
    choose_experts,
    gate_up,
    activation,
    shared_down,
    down,
    post_ffn_norm,
    ffn_add,
    final_norm,
    output,
    argmax,
    // Ops on a KV cache.
    kv_block_copy,
    kv_compaction,
    kv_rerotation,
    kv_prefix_rerotation,
    kv_key_copy,
    kv_key_restore,
    // Ops that compute inputs for a policy.
    kv_key_norms,
    kv_value_norms,
    kv_key_sum,
    kv_key_anchors,
    kv_projected_keys,
    kv_keys,
    kv_window_scores,
    kv_keep_queries,
    kv_order_queries,
    kv_place_queries,
    kv_query_statistics,
    kv_clear_sums,
    kv_grow_sums,
    kv_read_sums,
    kv_piece_scores,
    kv_replay_scores,
    // Ops outside a pipeline.
    replay, // keel replay-op
    other,
};
const char *role_name(Role role); // "down"

// Identifies an op of a pipeline. All text about an op is made from its tag.
struct OpTag {
    StepForm form = StepForm::none;
    Role role = Role::other;
    int32_t layer = -1; // number in the model; -1: no layer
    uint8_t part = 0;   // the number of the part, if the matrix is stored in parts

    bool operator==(const OpTag &) const = default;
};

// Returns the name of the role. Adds the number of the part if it is not the first: "qkv, part 2".
std::string part_text(const OpTag &tag);
// Returns form, layer and part: "decode layer 3: down". The text ends with part_text().
std::string label_text(const OpTag &tag);

} // namespace keel
