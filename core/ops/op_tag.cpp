#include "ops/op_tag.hpp"

#include <fmt/format.h>

namespace keel {
namespace {

const char *form_name(StepForm form) {
    switch (form) {
    case StepForm::decode: return "decode";
    case StepForm::prefill: return "prefill";
    case StepForm::batch: return "batched decode";
    case StepForm::none: break;
    }
    return "";
}

// Returns the first part of a label: the form of the step, and the layer.
std::string prefix_text(const OpTag &tag) {
    if (tag.form == StepForm::none) return {};
    if (tag.role == Role::argmax) return tag.form == StepForm::batch ? "batched " : "";
    if (tag.layer < 0) return fmt::format("{} ", form_name(tag.form));
    return fmt::format("{} layer {}: ", form_name(tag.form), tag.layer);
}

} // namespace

const char *role_name(Role role) {
    switch (role) {
    case Role::embed: return "embedding";
    case Role::attention_norm: return "attention norm";
    case Role::qkv: return "qkv";
    case Role::q_norm: return "q norm";
    case Role::k_norm: return "k norm";
    case Role::query_scale: return "query scale";
    case Role::qkv_prepare: return "qkv prepare";
    case Role::tapped_qkv_prepare: return "qkv prepare for a policy";
    case Role::attention: return "attention";
    case Role::tapped_attention: return "attention for a policy";
    case Role::attention_out: return "attention out";
    case Role::post_attention_norm: return "post-attention norm";
    case Role::attention_add: return "attention add";
    case Role::ffn_norm: return "ffn norm";
    case Role::shared_gate_up: return "shared gate up";
    case Role::shared_activation: return "shared activation";
    case Role::shared_router: return "shared router";
    case Role::shared_choice: return "shared choice";
    case Role::router: return "router";
    case Role::choose_experts: return "choice of experts";
    case Role::gate_up: return "gate up";
    case Role::activation: return "activation";
    case Role::shared_down: return "shared down";
    case Role::down: return "down";
    case Role::post_ffn_norm: return "post-ffn norm";
    case Role::ffn_add: return "ffn add";
    case Role::final_norm: return "final norm";
    case Role::output: return "output";
    case Role::argmax: return "argmax";
    case Role::kv_block_copy: return "kv: copy of blocks";
    case Role::kv_compaction: return "kv: compaction";
    case Role::kv_rerotation: return "kv: re-rotation";
    case Role::kv_prefix_rerotation: return "kv: re-rotation of the protected prefix";
    case Role::kv_key_copy: return "kv: copy of keys that are rotated again";
    case Role::kv_key_restore: return "kv: keys as they were before rotations";
    case Role::kv_key_norms: return "kv: key norms";
    case Role::kv_value_norms: return "kv: value norms";
    case Role::kv_key_sum: return "kv: key sum";
    case Role::kv_key_anchors: return "kv: key anchors";
    case Role::kv_projected_keys: return "kv: projected keys";
    case Role::kv_keys: return "kv: keys";
    case Role::kv_window_scores: return "kv: attention of the last queries";
    case Role::kv_keep_queries: return "kv: last queries";
    case Role::kv_order_queries: return "kv: last queries in order";
    case Role::kv_place_queries: return "kv: a step's queries";
    case Role::kv_query_statistics: return "kv: query statistics";
    case Role::kv_clear_sums: return "kv: sums of new slots";
    case Role::kv_grow_sums: return "kv: sums move to more memory";
    case Role::kv_read_sums: return "kv: sums";
    case Role::kv_piece_scores: return "kv: attention within pieces";
    case Role::kv_replay_scores: return "kv: attention of the replay";
    case Role::replay: return "replay";
    case Role::other: break;
    }
    return "op";
}

std::string part_text(const OpTag &tag) {
    if (tag.part == 0) return role_name(tag.role);
    return fmt::format("{}, part {}", role_name(tag.role), tag.part + 1);
}

std::string label_text(const OpTag &tag) { return prefix_text(tag) + part_text(tag); }

} // namespace keel
