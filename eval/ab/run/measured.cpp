#include "eval/ab/run/measured.hpp"

#include "eval/page/page.hpp"

#include <array>

namespace keel::ab {

std::optional<KeepMap> read_keep_map(Session &session, int64_t prompt_tokens) {
    const PolicySetup &plan = session.cache().setup();
    if (plan.may_move_keys() || prompt_tokens < 1) return std::nullopt;
    const KvCache &cache = session.cache().cache();
    KeepMap map;
    map.layers = cache.shape().layers;
    map.kv_heads = cache.shape().kv_heads;
    constexpr int64_t n = KeepMap::bin_count;
    std::vector<uint32_t> heads(
        // number of heads that kept each token
        std::min(static_cast<size_t>(prompt_tokens), most_prompt_tokens));
    for (uint32_t l = 0; l < map.layers; ++l) {
        for (uint32_t h = 0; h < map.kv_heads; ++h) {
            std::array<double, n> kept{};
            for (const int32_t position : cache.positions(l, h)) {
                if (position >= prompt_tokens) continue;
                kept[static_cast<size_t>(position * n / prompt_tokens)] += 1;
                if (static_cast<size_t>(position) < heads.size())
                    ++heads[static_cast<size_t>(position)];
            }
            for (int64_t b = 0; b < n; ++b) {
                // Bin b has the positions p for which p * n / prompt_tokens is b, rounded down.
                const int64_t begin = (b * prompt_tokens + n - 1) / n,
                              end = ((b + 1) * prompt_tokens + n - 1) / n;
                map.bins.push_back(end > begin
                                       ? static_cast<float>(kept[static_cast<size_t>(b)] /
                                                            static_cast<double>(end - begin))
                                       : 0.0F);
            }
        }
    }
    for (const uint32_t count : heads)
        map.kept += page_shade(count / (static_cast<double>(map.layers) * map.kv_heads));
    return map;
}

} // namespace keel::ab
