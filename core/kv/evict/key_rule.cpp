#include "kv/evict/key_rule.hpp"

#include <algorithm>
#include <cmath>

namespace keel {
namespace {

// number of slots at the front that are kept; the default of the policy keydiff
constexpr int32_t sinks = 4;

} // namespace

void score_by_keys(const keel_policy_input &in, uint32_t head_dim, bool shared,
                   std::vector<float> &scores, std::vector<uint8_t> &stay) {
    for (uint32_t h = 0; h < in.kv_heads; ++h) {
        const int64_t row = h * in.stride;
        double square = 0;
        for (uint32_t i = 0; i < head_dim; ++i) {
            const double x = in.key_sum[h * head_dim + i];
            square += x * x;
        }
        const double anchor = std::sqrt(square);
        for (int64_t slot = row; slot < row + in.lengths[h]; ++slot) {
            const double both = anchor * in.key_norms[slot];
            scores[static_cast<size_t>(slot)] =
                both > 0 ? static_cast<float>(-in.key_anchor[slot] / both) : 0.0F;
        }
        std::fill_n(stay.begin() + row, std::min(sinks, in.lengths[h]), uint8_t{1});
    }
    for (int64_t slot = 0; shared && slot < in.lengths[0]; ++slot) {
        float sum = 0;
        for (uint32_t h = 0; h < in.kv_heads; ++h)
            sum += scores[static_cast<size_t>(h * in.stride + slot)];
        scores[static_cast<size_t>(slot)] = sum / static_cast<float>(in.kv_heads);
    }
}

} // namespace keel
