#pragma once

#include <keel/policy.h>

#include <cstdint>
#include <vector>

namespace keel {

// The rule of policy `keydiff`: scores each slot by how little its key points where the keys of its
// head point, and lets the first 4 slots stay. It needs key_rule_needs. Writes `scores` and `stay`
// [kv_heads, stride]. With `shared` the heads of the layer keep the same slots: row 0 is the mean
// over the heads.
void score_by_keys(const keel_policy_input &input, uint32_t head_dim, bool shared,
                   std::vector<float> &scores, std::vector<uint8_t> &stay);

} // namespace keel
