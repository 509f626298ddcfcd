#pragma once

#include "platform/system_monitor.hpp"
#include "run/generate.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace keel::test {

inline const std::string &hybrid_opening() {
    static const std::string text = "Once upon a time there was a king who had three daughters, "
                                    "and the youngest went into the wood. ";
    return text;
}

// Each backend has one thread, so that both compute bitwise the same.
inline const std::string two_cpus =
    "{a: {plugin: cpu, params: {threads: 1}}, b: {plugin: cpu, params: {threads: 1}}}";

inline pipeline::PipelineConfig tiny_config(const std::vector<std::string> &more) {
    std::vector<std::string> sets{std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                                  "model.context=512", "sampling.temperature=0"};
    sets.insert(sets.end(), more.begin(), more.end());
    return pipeline::config_from_overrides(sets);
}

// The same config on one backend. A hybrid must give the same results.
inline pipeline::PipelineConfig one_cpu(std::vector<std::string> more) {
    more.insert(more.begin(), "backend={plugin: cpu, params: {threads: 1}}");
    return tiny_config(more);
}

inline pipeline::PipelineConfig two(std::vector<std::string> more) {
    more.insert(more.begin(), "hybrid.backends=" + two_cpus);
    return tiny_config(more);
}

// A monitor that returns the memory that the test sets.
class ScriptedMonitor final : public SystemMonitor {
  public:
    MemoryReading read() noexcept override {
        MemoryReading reading;
        reading.memory = {uint64_t{1} << 34, available, "a script"};
        return reading;
    }
    uint64_t available = uint64_t{1} << 33;
};

struct Greedy {
    std::vector<int32_t> ids;
    std::vector<float> logits; // logits after the last token
    SessionStats stats;
};

inline Greedy greedy(Session &session, const std::string &prompt, int64_t tokens) {
    Greedy out;
    session.prefill(session.pipeline().tokenizer()->encode(prompt));
    for (int64_t i = 0; i < tokens; ++i) {
        out.ids.push_back(session.greedy());
        session.decode(out.ids.back());
    }
    out.logits.assign(session.logits().begin(), session.logits().end());
    out.stats = session.stats();
    return out;
}

inline Greedy greedy(const pipeline::PipelineConfig &config, const std::string &prompt,
                     int64_t tokens, const PipelineOptions &options = {}) {
    Pipeline pipeline(config, options);
    Session session(pipeline);
    return greedy(session, prompt, tokens);
}

// Returns the logits after each token of `text`. These tokens follow the prompt, whatever the model
// predicts.
inline std::vector<std::vector<float>> logits_of(Session &session, const std::string &prompt,
                                                 const std::vector<int32_t> &text) {
    std::vector<std::vector<float>> all;
    session.prefill(session.pipeline().tokenizer()->encode(prompt));
    for (const int32_t id : text) {
        session.decode(id);
        all.emplace_back(session.logits().begin(), session.logits().end());
    }
    return all;
}

inline std::vector<std::vector<float>> logits_of(const pipeline::PipelineConfig &config,
                                                 const std::string &prompt,
                                                 const std::vector<int32_t> &text) {
    Pipeline pipeline(config);
    Session session(pipeline);
    return logits_of(session, prompt, text);
}

// Returns the largest difference between the logits of two runs.
inline double worst_gap(const std::vector<std::vector<float>> &a,
                        const std::vector<std::vector<float>> &b) {
    double worst = a.size() == b.size() ? 0 : INFINITY;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
        for (size_t j = 0; j < a[i].size(); ++j)
            worst = std::max(worst, std::abs(static_cast<double>(a[i][j]) - b[i][j]));
    return worst;
}

} // namespace keel::test
