#pragma once

#include "reference/check.hpp"
#include "reference/view.hpp"

namespace keel::reference {

// Reduces attention probabilities (or logits) of one KV head to keel_scores.out (scores.cpp). Use:
// for each KV head one reducer; for each of its query heads begin_query_head(), then add() per
// contributing query; at the end write().
class ScoreReducer {
  public:
    // m queries; slots 0..length-1 of KV head `kv_head`, which `group` query heads share.
    ScoreReducer(const keel_scores &scores, int64_t m, int64_t kv_head, int64_t group,
                 int64_t length);

    bool contributes(int64_t query) const { return query >= m_ - contributing_; }
    void begin_query_head();
    // One query's row. `seen` says which slots the query sees; with count_unseen the others count
    // 0, else not at all.
    void add(const Row &row, const std::vector<bool> &seen, bool count_unseen);
    void write();
    // Slots outside the ranges get 0 whatever was reduced.
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

// What NaN-proof maximum means: a NaN wins.
double larger(double a, double b);

} // namespace keel::reference
