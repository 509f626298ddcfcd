#pragma once

#include "reference/check.hpp"
#include "reference/view.hpp"

namespace keel::reference {

// Reduces attention probabilities (or logits) of one KV head to keel_scores.out (scores.cpp). How
// to use it: make one reducer for each KV head. For each query head of this KV head, call
// begin_query_head(), then add() for each query that counts. At the end call write().
class ScoreReducer {
  public:
    // Makes a reducer for m queries and the slots 0..length-1 of KV head `kv_head`, which `group`
    // query heads share.
    ScoreReducer(const keel_scores &scores, int64_t m, int64_t kv_head, int64_t group,
                 int64_t length);

    bool contributes(int64_t query) const { return query >= m_ - contributing_; }
    void begin_query_head();
    // Adds one query's row. `seen` marks the slots to which the query attends. If count_unseen is
    // true, all other slots count as 0. If it is false, all other slots are skipped.
    void add(const Row &row, const std::vector<bool> &seen, bool count_unseen);
    void write();
    // Excludes a slot: write() uses the score 0 for this slot and ignores what add() added. Used
    // for slots outside the ranges of KEEL_SCORES_RANGES.
    void exclude(int64_t slot) { excluded_[slot] = true; }

  private:
    struct Reduced {
        Row value;
        std::vector<int64_t> count;
    };
    double finished(const Reduced &head, int64_t slot) const;

    const keel_scores &scores_;
    View out_;
    int64_t m_, contributing_, kv_head_, group_, length_;
    std::vector<Reduced> heads_;
    std::vector<bool> excluded_;
};

void need_scores(const keel_scores *scores, int64_t heads, int64_t kv_heads, int64_t max_length);

// Returns the larger number, or NaN if one of the two is NaN.
double larger(double a, double b);

} // namespace keel::reference
