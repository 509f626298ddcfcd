#include "reference/scores.hpp"

#include <cmath>
#include <limits>

namespace keel::reference {

double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

void need_scores(const keel_scores *scores, int64_t heads, int64_t kv_heads, int64_t max_length) {
    need_that(scores != nullptr, "scores are missing");
    if (scores->reduce_queries > KEEL_REDUCE_MAX || scores->reduce_group > KEEL_REDUCE_MAX) {
        refuse(KEEL_E_UNSUPPORTED, "reduce_queries or reduce_group is not a known reduction");
    }
    need_that(scores->reduce_queries != KEEL_REDUCE_NONE, "reduce_queries is NONE");
    need(scores->out, "scores.out", types_f32,
         {scores->reduce_group == KEEL_REDUCE_NONE ? heads : kv_heads, any_size});
    need_that(scores->out->shape[1] >= max_length, "scores.out has fewer slots than max_length");
}

ScoreReducer::ScoreReducer(const keel_scores &scores, int64_t m, int64_t kv_head, int64_t group,
                           int64_t length)
    : scores_(scores), out_(bind(scores.out)), m_(m),
      contributing_(scores.window == 0 ? m : std::min<int64_t>(scores.window, m)),
      kv_head_(kv_head), group_(group), length_(length),
      excluded_(static_cast<size_t>(length), false) {}

void ScoreReducer::begin_query_head() {
    const bool is_max = scores_.reduce_queries == KEEL_REDUCE_MAX;
    const double start = is_max ? -std::numeric_limits<double>::infinity() : 0.0;
    heads_.push_back({Row(static_cast<size_t>(length_), start),
                      std::vector<int64_t>(static_cast<size_t>(length_), 0)});
}

void ScoreReducer::add(const Row &row, const std::vector<bool> &seen, bool count_unseen) {
    Reduced &head = heads_.back();
    for (size_t j = 0; j < row.size(); ++j) {
        if (!seen[j] && !count_unseen) continue;
        const double value = seen[j] ? row[j] : 0.0;
        head.value[j] = scores_.reduce_queries == KEEL_REDUCE_MAX ? larger(head.value[j], value)
                                                                  : head.value[j] + value;
        head.count[j] += 1;
    }
}

double ScoreReducer::finished(const Reduced &head, int64_t slot) const {
    if (excluded_[slot]) return 0.0;
    if (scores_.reduce_queries != KEEL_REDUCE_MEAN) return head.value[slot];
    return head.count[slot] == 0 ? 0.0 : head.value[slot] / static_cast<double>(head.count[slot]);
}

void ScoreReducer::write() {
    if (m_ == 0) return;
    const auto put = [&](int64_t row, int64_t slot, double value) {
        if (scores_.accumulate != 0) {
            const double old = out_.number(row, slot);
            value = scores_.reduce_queries == KEEL_REDUCE_MAX ? larger(old, value) : old + value;
        }
        View::set(out_.row(row), slot, static_cast<float>(value));
    };
    for (int64_t j = 0; j < length_; ++j) {
        if (scores_.reduce_group == KEEL_REDUCE_NONE) {
            for (int64_t g = 0; g < group_; ++g) {
                put(kv_head_ * group_ + g, j, finished(heads_[g], j));
            }
            continue;
        }
        double value = finished(heads_[0], j);
        for (int64_t g = 1; g < group_; ++g) {
            const double next = finished(heads_[g], j);
            value = scores_.reduce_group == KEEL_REDUCE_MAX ? larger(value, next) : value + next;
        }
        if (scores_.reduce_group == KEEL_REDUCE_MEAN) value /= static_cast<double>(group_);
        put(kv_head_, j, value);
    }
}

} // namespace keel::reference
