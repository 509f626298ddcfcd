// The keys of mixtures of experts.

#include "model/arch/arch.hpp"

#include <fmt/format.h>

namespace keel::arch {
namespace {

constexpr int64_t max_experts = 4096;
constexpr int64_t max_expert_size = 1 << 24;

// Refuses a number other than `neutral`, with which the key changes nothing.
void refuse_other(const model::ConfigReader &in, const char *key, int64_t neutral) {
    if (in.has(key) && in.integer(key, INT32_MIN, INT32_MAX) != neutral)
        in.refuse(key, fmt::format("{}", neutral));
}

} // namespace

void read_experts(const model::ConfigReader &in, ModelConfig &config, const char *size_key) {
    Experts &e = config.experts;
    // transformers 5 writes "num_local_experts" for models whose authors wrote "num_experts".
    const char *count_key = in.has("num_local_experts") ? "num_local_experts" : "num_experts";
    e.count = in.integer(count_key, 1, max_experts);
    e.used = in.integer("num_experts_per_tok", 1, e.count);
    e.size = in.integer(size_key, 1, max_expert_size);
    refuse_other(in, "decoder_sparse_step", 1);
    if (!in.integers("mlp_only_layers", 0, INT32_MAX, max_experts).empty())
        in.refuse("mlp_only_layers", "an empty list, because each layer must have experts");
    refuse_other(in, "first_k_dense_replace", 0);
    refuse_other(in, "n_shared_experts", 0);
    refuse_other(in, "n_group", 1);
    refuse_other(in, "topk_group", 1);
    if (in.number("routed_scaling_factor", -1e9, 1e9, 1) != 1)
        in.refuse("routed_scaling_factor", "1");
    if (const std::string f = in.text("scoring_func", "softmax"); f != "softmax")
        in.refuse("scoring_func", "softmax");
}

} // namespace keel::arch
