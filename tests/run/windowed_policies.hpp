// The slots that a policy keeps of a prompt, on the models of windowed_rig.hpp.
#pragma once

#include "windowed_rig.hpp"

#include <algorithm>

namespace keel::test {

inline const std::vector<std::string> &shipped_policies() {
    static const std::vector<std::string> all = {
        "none",  "sliding_window",     "random",    "snapkv", "h2o", "tova", "keydiff",
        "knorm", "expected_attention", "compactor", "kvzip"};
    return all;
}

inline const std::vector<std::string> &windowed_shapes() {
    static const std::vector<std::string> all = {"llama", "gemma3", "gemma2", "mistral"};
    return all;
}

class KeptByPolicy {
  public:
    static constexpr int64_t budget = 32, decoded = 6;

    KeptByPolicy(const std::string &policy, const std::string &shape, const std::string &backend,
                 int64_t prompt = 120, const Sets &more = {}) {
        Sets sets = windowed_sets(shape, backend, {"policy.plugin=" + policy});
        if (policy != "none") {
            sets.push_back("policy.budget.tokens=" + std::to_string(budget));
            sets.emplace_back("policy.protect.prefix=4");
        }
        if (policy == "snapkv") sets.emplace_back("policy.params.window=8");
        sets.insert(sets.end(), more.begin(), more.end());
        Pipeline pipeline(pipeline::config_from_overrides(sets));
        model_layers_ = static_cast<uint32_t>(pipeline.model().layers);
        Session session(pipeline);
        session.prefill(some_tokens(prompt));
        session.greedy();
        const KvCache &cache = session.cache().cache();
        layers_ = cache.shape().layers;
        for (size_t row = 0; row < cache.rows(); ++row)
            kept_.emplace_back(cache.row_positions(row).begin(), cache.row_positions(row).end());
        for (int64_t i = 0; i < decoded; ++i) session.decode(session.greedy());
        session.logits();
        evictions_ = session.cache().evictions();
        has_windows_ = cache.shape().window > 0 || session.cache().caches().window() != nullptr;
        keeps_all_ = pipeline.policy_setup().keeps_all();
    }

    uint64_t evictions() const { return evictions_; }
    int64_t rows() const { return std::ssize(kept_); }
    int64_t slots() const { // of all heads, after the prompt
        int64_t sum = 0;
        for (const auto &row : kept_) sum += std::ssize(row);
        return sum;
    }
    // Returns the share of the slots kept by `other` that are also kept here.
    double share_of(const KeptByPolicy &other) const {
        if (other.kept_.size() != kept_.size()) return 0;
        double both = 0;
        for (size_t row = 0; row < kept_.size(); ++row) {
            std::vector<int32_t> same;
            std::set_intersection(kept_[row].begin(), kept_[row].end(), other.kept_[row].begin(),
                                  other.kept_[row].end(), std::back_inserter(same));
            both += static_cast<double>(same.size());
        }
        return both / static_cast<double>(std::max(slots(), other.slots()));
    }
    // Returns the text that docs/reference/models.md has for this result.
    std::string text() const {
        if (keeps_all_) {
            if (!has_windows_) return "keeps all";
            return layers_ == model_layers_ ? "holds the window" : "keeps all; windows held";
        }
        REQUIRE(evictions_ > 0);
        return layers_ == model_layers_ ? "all layers" : "full layers; windows held";
    }

  private:
    uint32_t layers_ = 0, model_layers_ = 0;
    uint64_t evictions_ = 0;
    bool has_windows_ = false, keeps_all_ = false;
    std::vector<std::vector<int32_t>> kept_; // positions of [heads of the policy's layers]
};

} // namespace keel::test
