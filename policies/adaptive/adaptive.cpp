// Ada-KV (arXiv 2407.11550). A head whose attention is spread over many slots gets a larger budget.
// A head whose attention is on few slots gets a smaller budget.
#include <keel/sdk_policy.hpp>

#include <cstdio>

namespace {

using namespace keel::sdk;

constexpr const char *scopes[] = {"layer", "global", nullptr};
constexpr const char *methods[] = {"none", "sum", "rank", "softmax", nullptr};
constexpr const char *modes[] = {"none", "kvpress", nullptr};

struct Candidate {
    double value; // values of different heads can be compared
    int32_t slot;
    uint32_t row; // layer * kv_heads + head
};

bool better(const Candidate &a, const Candidate &b) {
    if (a.value != b.value) return a.value > b.value;
    // If two values are equal, the newer slot comes first. The core breaks ties in the same way.
    return a.slot != b.slot ? a.slot > b.slot : a.row < b.row;
}

class Adaptive {
  public:
    static constexpr PluginInfo info = {"adaptive", "0.1.0", "Keel", "MIT",
                                        "Gives each head as many slots as it has among the best of "
                                        "its layer, or of the model (Ada-KV)."};
    static constexpr keel_param_spec params[] = {
        KEEL_FLOAT_PARAM("floor", "0.2", 0, 1,
                         "share of the average budget that every head gets in any case"),
        KEEL_CHOICE_PARAM("scope", "layer", scopes,
                          "layer: heads compete within their layer; global: over all layers"),
        KEEL_CHOICE_PARAM(
            "normalize", "none", methods,
            "how scores are made comparable first. none: as they are, for policies whose "
            "scores are; sum: divided "
            "by the head's sum; rank: by place within the head; softmax: over the head"),
        KEEL_CHOICE_PARAM("compat", "none", modes,
                          "kvpress: as AdaKVPress of kvpress, compares the scores of every policy "
                          "as they are, also where they do not compare across heads")};

    Adaptive(const Setup &setup, keel_allocator_needs &needs)
        : floor_(setup.params.number("floor")), global_(setup.params.is("scope", "global")),
          by_sum_(setup.params.is("normalize", "sum")),
          by_rank_(setup.params.is("normalize", "rank")),
          by_softmax_(setup.params.is("normalize", "softmax")) {
        needs.needs = KEEL_ALLOCATOR_NEED_SCORES;
        needs.flags = KEEL_ALLOCATOR_RAGGED;
        const bool as_they_are = setup.params.is("normalize", "none");
        const bool like_kvpress = setup.params.is("compat", "kvpress");
        if (like_kvpress && !as_they_are)
            throw Failure(KEEL_E_INVALID_ARG,
                          "compat: kvpress compares scores as they are; remove normalize, or "
                          "remove compat");
        if (as_they_are && !like_kvpress) needs.flags |= KEEL_ALLOCATOR_COMPARES;
    }

    void allocate(const keel_allocator_input &in, int32_t *budgets) {
        if (in.scores == nullptr || in.protected_masks == nullptr)
            throw Failure(KEEL_E_INVALID_ARG, "the host gave no scores");
        const uint32_t pools = global_ ? 1 : in.layers,
                       rows = in.layers * in.kv_heads / std::max(1u, pools);
        for (uint32_t pool = 0; pool < pools; ++pool)
            share_pool(in, pool * rows, (pool + 1) * rows, budgets);
    }

  private:
    // Distributes budget * (end - begin) slots over the heads with the row numbers begin..end-1.
    void share_pool(const keel_allocator_input &in, uint32_t begin, uint32_t end,
                    int32_t *budgets) {
        candidates_.clear();
        int64_t left = in.budget * (end - begin);
        for (uint32_t row = begin; row < end; ++row) {
            budgets[row] = static_cast<int32_t>(add_head(in, row));
            left -= budgets[row];
        }
        if (left < static_cast<int64_t>(candidates_.size())) {
            const auto middle = candidates_.begin() + std::max<int64_t>(0, left);
            std::nth_element(candidates_.begin(), middle, candidates_.end(), better);
            candidates_.erase(middle, candidates_.end());
        }
        for (const Candidate &candidate : candidates_) ++budgets[candidate.row];
        left -= static_cast<int64_t>(candidates_.size());
        // The budget is larger than the number of slots, so nothing is evicted. The rest of the
        // budget is divided evenly.
        for (uint32_t row = begin; row < end && left > 0; ++row) {
            const int64_t share = (left + (end - row) - 1) / (end - row);
            budgets[row] += static_cast<int32_t>(share);
            left -= share;
        }
    }

    // Returns the number of slots that the head gets at any scores. Adds the head's other slots to
    // candidates_.
    int64_t add_head(const keel_allocator_input &in, uint32_t row) {
        const uint32_t layer = row / in.kv_heads, head = row % in.kv_heads;
        const float *scores = in.scores[layer] + head * in.stride;
        const uint8_t *mask = in.protected_masks[layer] + head * in.stride;
        const int32_t length = in.lengths[row];
        own_.clear();
        int64_t held = 0;
        for (int32_t slot = 0; slot < length; ++slot) {
            if (std::isnan(scores[slot]))
                throw Failure(KEEL_E_INVALID_ARG,
                              "the score of slot %d in layer %u, head %u is NaN", slot, layer,
                              head);
            if (mask[slot] != 0) {
                ++held;
            } else {
                own_.push_back({scores[slot], slot, row});
            }
        }
        const int64_t safe = std::min<int64_t>(
            length, static_cast<int64_t>(floor_ * static_cast<double>(in.budget)));
        const int64_t base = std::min(in.budget, std::max({in.protected_slots, held, safe}));
        const auto taken = std::clamp<int64_t>(base - held, 0, static_cast<int64_t>(own_.size()));
        normalize(layer, head);
        if (by_rank_) {
            std::sort(own_.begin(), own_.end(), better);
            for (size_t i = 0; i < own_.size(); ++i)
                own_[i].value = 1 - static_cast<double>(i) / static_cast<double>(own_.size());
        } else if (taken < static_cast<int64_t>(own_.size())) {
            std::nth_element(own_.begin(), own_.begin() + taken, own_.end(), better);
        }
        candidates_.insert(candidates_.end(), own_.begin() + taken, own_.end());
        return base;
    }

    void normalize(uint32_t layer, uint32_t head) {
        if (!by_sum_ && !by_softmax_) return;
        double largest = 0, sum = 0;
        for (const Candidate &c : own_) {
            if (!std::isfinite(c.value) || (by_sum_ && c.value < 0))
                throw Failure(
                    KEEL_E_INVALID_ARG,
                    "normalize: %s: slot %d of layer %u, head %u has the score %g; expected %s. "
                    "rank takes any score",
                    by_sum_ ? "sum" : "softmax", c.slot, layer, head, c.value,
                    by_sum_ ? "0 or more" : "a finite number");
            largest = &c == own_.data() ? c.value : std::max(largest, c.value);
        }
        for (Candidate &c : own_) {
            if (by_softmax_) c.value = std::exp(c.value - largest);
            sum += c.value;
        }
        for (Candidate &c : own_) c.value = sum > 0 ? c.value / sum : 0.0;
    }

    double floor_;
    bool global_, by_sum_, by_rank_, by_softmax_;
    std::vector<Candidate> candidates_, own_; // the memory is used again by the next call
};

} // namespace

KEEL_ALLOCATOR_PLUGIN(Adaptive)
