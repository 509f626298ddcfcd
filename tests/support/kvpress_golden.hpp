#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace keel::test {

// Slots that kvpress kept, from tests/golden/make_kvpress_golden.py.
inline nlohmann::json kvpress_golden() {
    std::ifstream in(std::string(KEEL_SOURCE_DIR) + "/tests/golden/kvpress.json");
    return nlohmann::json::parse(in);
}

// The slots of a hexadecimal number whose bit t is slot t, rising.
inline std::vector<int32_t> slots_of_bits(const std::string &hex) {
    std::vector<int32_t> out;
    for (size_t i = 0; i < hex.size(); ++i) {
        const int digit = std::stoi(hex.substr(hex.size() - 1 - i, 1), nullptr, 16);
        for (int bit = 0; bit < 4; ++bit)
            if ((digit >> bit & 1) != 0) out.push_back(static_cast<int32_t>(4 * i) + bit);
    }
    return out;
}

// How one head's kept slots compare with kvpress's.
struct KvpressRow {
    bool is_equal = false;
    bool is_near_tie = false; // different, but only in slots whose scores are near the cut
};

inline KvpressRow compare_with_kvpress(const std::vector<int32_t> &kept, const nlohmann::json &item,
                                       size_t row) {
    const auto expected = slots_of_bits(item.at("keep")[row]),
               near = slots_of_bits(item.at("near")[row]);
    std::vector<int32_t> differ;
    std::set_symmetric_difference(kept.begin(), kept.end(), expected.begin(), expected.end(),
                                  std::back_inserter(differ));
    const bool all_near = std::includes(near.begin(), near.end(), differ.begin(), differ.end());
    return {differ.empty(), !differ.empty() && all_near};
}

} // namespace keel::test
