#pragma once

#include <keel/policy.h>

#include <cstdint>
#include <vector>

namespace keel {

// The rule of policy `keydiff`: the score of a slot is minus the cosine between its key and the sum
// of its head's normalized keys. The first 4 slots always stay. `input` has the inputs of
// key_rule_needs. Writes `scores` and `stay`, both [kv_heads, stride]. If `shared` is true, all
// heads of the layer keep the same slots. Then row 0 of `scores` is the mean over the heads.
void score_by_keys(const keel_policy_input &input, uint32_t head_dim, bool shared,
                   std::vector<float> &scores, std::vector<uint8_t> &stay);

} // namespace keel
