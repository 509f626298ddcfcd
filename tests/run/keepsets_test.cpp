// Compares the slots that each policy keeps of a real text in a real model with
// make_keepsets_golden.py. Here Keel collects queries, sums and reduces attention, repeats contexts
// and divides budgets. The Python formulas use the queries, keys and values of transformers.
#include "run/session.hpp"

#include <catch2/catch.hpp>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

using namespace keel;
using nlohmann::json;

namespace {

json keepsets() {
    std::ifstream in(std::string(KEEL_SOURCE_DIR) + "/tests/golden/keepsets.json");
    REQUIRE(in);
    return json::parse(in);
}

// Returns the tokens of a hexadecimal number. Bit t stands for token t.
std::vector<int32_t> tokens_of(const std::string &hex) {
    std::vector<int32_t> out;
    for (size_t i = 0; i < hex.size(); ++i) {
        const int digit = std::stoi(hex.substr(hex.size() - 1 - i, 1), nullptr, 16);
        for (int bit = 0; bit < 4; ++bit) {
            if ((digit >> bit & 1) != 0) out.push_back(static_cast<int32_t>(4 * i) + bit);
        }
    }
    return out;
}

std::string params_of(const json &plugin) {
    std::string text;
    for (const auto &[key, value] : plugin.at("params").items())
        text += (text.empty() ? "" : ", ") + key + ": " + value.get<std::string>();
    return "{plugin: " + plugin.at("plugin").get<std::string>() + ", params: {" + text + "}";
}

} // namespace

TEST_CASE("Each policy keeps of a text in a model the tokens of its paper's formula") {
    const json file = keepsets();
    const auto ids = file.at("tokens").get<std::vector<int32_t>>();
    const auto layers = file.at("layers").get<uint32_t>(),
               heads = file.at("kv_heads").get<uint32_t>();
    std::set<std::string> seen;
    int rows = 0, compared = 0;
    for (const json &item : file.at("cases")) {
        const std::string policy =
            params_of(item) + ", budget: {tokens: " + std::to_string(file.at("budget").get<int>()) +
            "}, allocator: " + params_of(item.at("allocator")) + "}, protect: {prefix: 0}}";
        INFO(policy);
        const std::string text =
            "model: {path: " + std::string(KEEL_SOURCE_DIR) +
            "/models/tiny, context: 512}\nbackend: {plugin: cpu, params: {compute: "
            "exact}}\nkv: {dtype: f32}\n"
            "policy: " +
            policy + "\nstrict: true\n";
        Pipeline pipeline(pipeline::parse_config(text, "keepsets.yaml", "/"));
        Session session(pipeline);
        REQUIRE(session.prefill(ids, false));
        session.end_prompt();
        REQUIRE(session.cache().evictions() == 1);
        seen.insert(item.at("plugin").get<std::string>() + " " +
                    item.at("allocator").at("plugin").get<std::string>());
        for (uint32_t row = 0; row < layers * heads; ++row) {
            INFO("layer " << row / heads << ", head " << row % heads);
            const auto positions = session.cache().cache().positions(row / heads, row % heads);
            const std::vector<int32_t> kept(positions.begin(), positions.end());
            const auto expected = tokens_of(item.at("keep")[row]),
                       sure = tokens_of(item.at("sure")[row]);
            ++rows;
            CHECK(std::includes(kept.begin(), kept.end(), sure.begin(), sure.end()));
            const bool is_flat =
                // a tie in another head may change a slot
                item.at("allocator").at("plugin") != "adaptive";
            if (is_flat) CHECK(kept.size() == expected.size());
            const json &gap = item.at("gap")[row];
            if (!gap.is_null() && gap.get<double>() < 1e-4) continue;
            ++compared;
            CHECK(kept == expected);
        }
    }
    CHECK(seen == std::set<std::string>{"compactor uniform", "expected_attention uniform",
                                        "h2o uniform", "keydiff uniform", "knorm uniform",
                                        "kvzip adaptive", "kvzip uniform", "snapkv adaptive",
                                        "snapkv pyramid", "snapkv uniform", "tova uniform"});
    // Maximum pooling makes neighbours equal. In heads with very concentrated attention, many
    // float32 scores are zero. In both cases the kept slots are not unique.
    CHECK(compared * 10 > rows * 9);
}
