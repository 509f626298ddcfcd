#pragma once

#include "failing_cpu.hpp"
#include "run/pipeline.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_writer.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

namespace keel::test {

// A random model that is written once: 2 layers, 4 heads and 2 KV heads of 16 elements, hidden size
// 64, feed-forward size 96, 256 tokens, trained on 8192 positions, weights in f32.
inline const std::string &mini_model() {
    static const TempFolder folder;
    static const std::string path = [] {
        MiniLlama mini;
        mini.max_positions = 8192;
        make_mini_llama(folder.path(), mini);
        return folder.path().string();
    }();
    return path;
}

inline pipeline::PipelineConfig mini_config(std::initializer_list<std::string> more = {}) {
    std::vector<std::string> sets = {"model.path=" + mini_model(),
                                     "backend={plugin: cpu, params: {threads: 1}}"};
    sets.insert(sets.end(), more);
    return pipeline::config_from_overrides(sets);
}

// Returns the config of the model on two backends `a` and `b`.
inline pipeline::PipelineConfig mini_hybrid(std::initializer_list<std::string> more = {}) {
    std::vector<std::string> sets = {"model.path=" + mini_model(),
                                     "hybrid.backends={a: {plugin: cpu, params: {threads: 1}}, "
                                     "b: {plugin: cpu, params: {threads: 1}}}"};
    sets.insert(sets.end(), more);
    return pipeline::config_from_overrides(sets);
}

inline PipelineOptions mini_options(PipelineOptions options = {}) {
    options.need_tokenizer = false;
    options.quiet_fallbacks = true;
    return options;
}

// Returns true if x and y are equal except for the rounding of sums in another order.
inline bool is_close(const std::vector<float> &x, const std::vector<float> &y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [](float p, float q) { return std::abs(p - q) < 1e-4F; });
}

} // namespace keel::test
