#pragma once

#include "config/setting.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace keel::pipeline {

struct SamplingSection {
    Setting<double> temperature;
    Setting<int64_t> top_k;
    Setting<double> top_p, min_p, repetition_penalty;
    Setting<int64_t> repetition_window, seed;
    bool operator==(const SamplingSection &) const = default;
};

struct GenerationSection {
    static constexpr int64_t default_max_tokens = 128;
    static constexpr int64_t most_lookup = 32;
    Setting<std::string> prompt;
    Setting<std::vector<std::string>> pin;
    Setting<int64_t> max_tokens;
    Setting<std::vector<std::string>> stop;
    Setting<int64_t> lookup;
    bool operator==(const GenerationSection &) const = default;
};

} // namespace keel::pipeline
