#pragma once

// Reads the golden logits and greedy texts of an independent implementation (tests/golden, with the
// scripts that made them).

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace keel::test {

struct GoldenLogits {
    int64_t position = 0;
    std::vector<int32_t> top_ids;
    std::vector<double> top_values;
    int32_t stride = 1;
    std::vector<double> every; // logits number 0, stride, 2 * stride, ...
    double logsumexp = 0;
};

struct GoldenCase {
    std::string name, text;
    std::vector<int32_t> ids, greedy, argmax;
    std::vector<GoldenLogits> logits;
};

inline std::vector<GoldenCase> read_golden(const std::string &file) {
    std::ifstream in(std::string(KEEL_SOURCE_DIR "/tests/golden/") + file);
    const nlohmann::json json = nlohmann::json::parse(in);
    std::vector<GoldenCase> cases;
    for (const auto &c : json.at("cases")) {
        GoldenCase golden;
        golden.name = c.at("name");
        golden.text = c.value("text", "");
        golden.ids = c.at("ids").get<std::vector<int32_t>>();
        golden.greedy = c.at("greedy").get<std::vector<int32_t>>();
        if (c.contains("argmax")) golden.argmax = c.at("argmax").get<std::vector<int32_t>>();
        for (const auto &l : c.at("logits")) {
            golden.logits.push_back({l.at("position"), l.at("top_ids"), l.at("top_values"),
                                     l.at("stride"), l.at("every"), l.at("logsumexp")});
        }
        cases.push_back(std::move(golden));
    }
    return cases;
}

} // namespace keel::test
