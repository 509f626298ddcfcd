#include "config/schema.hpp"

namespace keel::pipeline {

std::optional<uint64_t> KvSection::max_bytes() const {
    if (!max_mib.value) return std::nullopt;
    return static_cast<uint64_t>(*max_mib.value * 1048576.0);
}

void declare_kv(Schema &schema) {
    schema.sections.push_back({"kv", "The cache of keys and values.", "dtype"});
    schema.keys.add(
        {.path = "kv.dtype", .doc = "Type of the cached keys and values.", .example = "q8_0"},
        [](auto &c) -> auto & { return c.kv.dtype; }, KEEL_DTYPE_F16);
    schema.keys.add(
        {.path = "kv.key_dtype",
         .doc = "Type of the cached keys. If absent, kv.dtype applies.",
         .example = "q8_0"},
        [](auto &c) -> auto & { return c.kv.key_dtype; });
    schema.keys.add(
        {.path = "kv.value_dtype",
         .doc = "Type of the cached values. If absent, kv.dtype applies.",
         .example = "q4_0"},
        [](auto &c) -> auto & { return c.kv.value_dtype; });
    schema.keys.add(
        {.path = "kv.max_mib",
         .doc = "Hard limit of the cache's size in MiB, never exceeded. Layers with "
                "an attention window get their memory first. none: only model.context "
                "limits the cache.",
         .example = "256",
         .rule = {.minimum = 0.001, .maximum = max_mib, .word = "none"}},
        [](auto &c) -> auto & { return c.kv.max_mib; });
    schema.keys.add(
        {.path = "kv.count_policy_state",
         .doc = "Whether kv.max_mib and policy.budget.mib include the memory that the policy "
                "needs beside the cache. If true, each sequence reserves the largest size of "
                "this memory.",
         .example = "true"},
        [](auto &c) -> auto & { return c.kv.count_policy_state; }, false);
}

} // namespace keel::pipeline
