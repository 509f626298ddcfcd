// The slots that each policy keeps, against kvpress on the same queries, keys and values
// (make_kvpress_golden.py).
#include "kv/evict/keep_lists.hpp"
#include "policies/plugin_rig.hpp"
#include "policies/scene.hpp"
#include "support/kvpress_golden.hpp"

#include <set>

using namespace keel;
using namespace keel::test;
using nlohmann::json;

TEST_CASE("Each policy keeps the slots that kvpress keeps of the same tensors") {
    std::set<std::string> seen;
    int rows = 0, equal = 0;
    const json file = kvpress_golden();
    for (const json &of : file.at("scenes")) {
        const auto heads = of.at("heads").get<uint32_t>(),
                   kv_heads = of.at("kv_heads").get<uint32_t>(),
                   dim = of.at("head_dim").get<uint32_t>();
        const auto length = of.at("length").get<int32_t>();
        const TestModel model(1, heads, kv_heads, dim);
        Scene scene(of.at("seed").get<uint64_t>(), heads, kv_heads, dim, length, false,
                    model.frequencies);
        for (const json &item : of.at("cases")) {
            const auto name = item.at("plugin").get<std::string>();
            const auto budget = item.at("budget").get<int32_t>();
            INFO(of.at("name") << ": " << name << " " << item.at("params") << ", budget "
                               << budget);
            const LoadedPlugin plugin(name,
                                      item.at("params").get<std::map<std::string, std::string>>());
            PolicyRun run(plugin, model);
            REQUIRE(run.status == KEEL_OK);
            const keel_policy_input input = scene.input(run.needs, budget);
            std::vector<float> scores;
            std::vector<uint8_t> stay;
            REQUIRE(run.decide(input, scores, stay) == KEEL_OK);
            seen.insert(name);
            for (size_t row = 0; row < item.at("keep").size(); ++row) {
                CAPTURE(row);
                const size_t begin = row * static_cast<size_t>(input.stride);
                std::vector<int32_t> order, keep;
                keep_best({length, budget, input.protected_mask + begin, stay.data() + begin},
                          scores.data() + begin, name, order, keep);
                const KvpressRow result = compare_with_kvpress(keep, item, row);
                ++rows;
                equal += result.is_equal;
                CHECK((result.is_equal || result.is_near_tie));
            }
        }
    }
    CHECK(seen ==
          std::set<std::string>{"expected_attention", "h2o", "keydiff", "knorm", "snapkv", "tova"});
    INFO(equal << " of " << rows << " heads keep exactly kvpress's slots, the others but for ties");
    CHECK(equal * 50 > rows * 49);
}
