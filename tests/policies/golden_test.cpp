// Compares the scores and kept slots of each policy, and the budgets of each allocator, with the
// results of make_policies_golden.py.
#include "kv/evict/keep_lists.hpp"
#include "policies/plugin_rig.hpp"
#include "policies/scene.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <set>

using namespace keel;
using namespace keel::test;
using nlohmann::json;

namespace {

json golden() {
    std::ifstream in(std::string(KEEL_SOURCE_DIR) + "/tests/golden/policies.json");
    REQUIRE(in);
    return json::parse(in);
}

std::map<std::string, std::string> params_of(const json &method) {
    return method.at("params").get<std::map<std::string, std::string>>();
}

struct Counts {
    // heads: rows of kept slots; compared: rows in which the score gap makes the result unique
    int heads = 0, compared = 0;
};

void check_method(const json &scene, const json &method, Counts &counts) {
    const auto name = method.at("plugin").get<std::string>();
    INFO(scene.at("name") << ": " << name << " " << method.at("params"));
    const auto heads = scene.at("heads").get<uint32_t>(),
               kv_heads = scene.at("kv_heads").get<uint32_t>(),
               dim = scene.at("head_dim").get<uint32_t>();
    const auto length = scene.at("length").get<int32_t>(),
               budget = method.at("budget").get<int32_t>();
    const TestModel model(1, heads, kv_heads, dim, scene.at("interleaved").get<bool>());
    Scene inputs(scene.at("seed").get<uint64_t>(), heads, kv_heads, dim, length,
                 scene.at("interleaved").get<bool>(), model.frequencies);
    const LoadedPlugin plugin(name, params_of(method));
    PolicyRun run(plugin, model);
    REQUIRE(run.status == KEEL_OK);
    CHECK(static_cast<int32_t>(run.needs.least_budget) <= budget);
    const keel_policy_input input = inputs.input(run.needs, budget);
    std::vector<float> scores;
    std::vector<uint8_t> stay;
    REQUIRE(run.decide(input, scores, stay) == KEEL_OK);

    const auto staying = method.at("stay").get<std::set<int32_t>>();
    const size_t rows = method.at("scores").size();
    CHECK(rows == (run.needs.granularity == KEEL_KEEP_LAYER ? 1 : kv_heads));
    for (size_t row = 0; row < rows; ++row) {
        CAPTURE(row);
        const auto expected = method.at("scores")[row].get<std::vector<double>>();
        const float *got = scores.data() + row * static_cast<size_t>(input.stride);
        const uint8_t *marks = stay.data() + row * static_cast<size_t>(input.stride);
        double largest = 0;
        for (const double x : expected) largest = std::max(largest, std::abs(x));
        int wrong = 0;
        for (int32_t t = 0; t < length; ++t) {
            CHECK((marks[t] != 0) == (staying.count(t) != 0));
            if (staying.count(t) == 0 &&
                std::abs(got[t] - expected[static_cast<size_t>(t)]) > 5e-6 * largest)
                ++wrong;
        }
        CHECK(wrong == 0);
        std::vector<int32_t> order, keep;
        const std::vector<uint8_t> unprotected(static_cast<size_t>(length), 0);
        keep_best({length, budget, unprotected.data(), marks}, got, name, order, keep);
        std::vector<int32_t> whole; // if the budget equals the length, nothing is evicted
        keep_best({length, length, unprotected.data(), marks}, got, name, order, whole);
        CHECK(whole.size() == static_cast<size_t>(length));
        ++counts.heads;
        const json &gap = method.at("gap")[row];
        if (!gap.is_null() && gap.get<double>() <= 1e-6) continue;
        ++counts.compared;
        CHECK(keep == method.at("keep")[row].get<std::vector<int32_t>>());
    }
}

} // namespace

TEST_CASE("Each policy scores and keeps what its paper's formula gives for the same queries, keys "
          "and values") {
    Counts counts;
    std::set<std::string> seen;
    const json file = golden();
    for (const json &scene : file.at("scorers")) {
        for (const json &method : scene.at("methods")) {
            check_method(scene, method, counts);
            seen.insert(method.at("plugin"));
        }
    }
    CHECK(seen == std::set<std::string>{"compactor", "expected_attention", "h2o", "keydiff",
                                        "knorm", "kvzip", "snapkv", "tova"});
    // Maximum pooling gives neighbours equal scores. Then the result is not unique, but only a few
    // rows have this.
    CHECK(counts.heads > 130);
    CHECK(counts.compared * 10 > counts.heads * 9);
}

TEST_CASE("Allocators give exactly the slots of the formulas, and the right total") {
    const json file = golden();
    for (const json &item : file.at("allocators")) {
        INFO(item.dump());
        const auto lengths = item.at("lengths").get<std::vector<std::vector<int32_t>>>();
        const auto layers = static_cast<uint32_t>(lengths.size()),
                   heads = static_cast<uint32_t>(lengths[0].size());
        const auto protected_slots = item.at("protected").get<int32_t>();
        const int64_t stride = 32;
        std::vector<int32_t> flat;
        std::vector<std::vector<float>> scores;
        std::vector<std::vector<uint8_t>> masks;
        for (uint32_t l = 0; l < layers; ++l) {
            auto &row = scores.emplace_back(heads * static_cast<size_t>(stride), std::nanf(""));
            auto &mask = masks.emplace_back(row.size(), uint8_t{0});
            for (uint32_t h = 0; h < heads; ++h) {
                flat.push_back(lengths[l][h]);
                const uint64_t seed = item.at("seed").get<uint64_t>() + 10 * l + h;
                for (int32_t t = 0;
                     t < std::min<int32_t>(lengths[l][h], static_cast<int32_t>(stride)); ++t) {
                    row[h * static_cast<size_t>(stride) + static_cast<size_t>(t)] =
                        static_cast<float>(
                            std::pow(scene_noise(seed, static_cast<uint64_t>(t)) + 1,
                                     1 + 2 * static_cast<int>(h) + static_cast<int>(l)));
                    mask[h * static_cast<size_t>(stride) + static_cast<size_t>(t)] =
                        t < protected_slots ? 1 : 0;
                }
            }
        }
        const TestModel model(layers, heads, heads, 8);
        const LoadedPlugin plugin(item.at("plugin"), params_of(item));
        AllocatorRun run(plugin, model);
        REQUIRE(run.status == KEEL_OK);
        std::vector<const float *> score_rows;
        std::vector<const uint8_t *> mask_rows;
        for (uint32_t l = 0; l < layers; ++l) {
            score_rows.push_back(scores[l].data());
            mask_rows.push_back(masks[l].data());
        }
        keel_allocator_input input = {KEEL_HEADER(keel_allocator_input)};
        input.layers = layers;
        input.kv_heads = heads;
        input.budget = item.at("budget").get<int64_t>();
        input.protected_slots = protected_slots;
        input.fixed_slots = item.value("fixed", protected_slots);
        input.stride = stride;
        input.lengths = flat.data();
        if ((run.needs.needs & KEEL_ALLOCATOR_NEED_SCORES) != 0) {
            input.scores = score_rows.data();
            input.protected_masks = mask_rows.data();
        }
        CHECK(run.allocate(input) == item.at("expect").get<std::vector<int32_t>>());
        CHECK(run.error.empty());
    }
}
