#include "reference/check.hpp"
#include "reference/ops.hpp"
#include "reference/view.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace keel::reference {
namespace {

constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

bool all_finite(const Row &row) {
    return std::all_of(row.begin(), row.end(), [](double value) { return std::isfinite(value); });
}

Row scores_of(const Row &logits, bool sigmoid) {
    Row scores = logits;
    if (sigmoid) {
        for (double &s : scores) s = 1 / (1 + std::exp(-s));
        return scores;
    }
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (double &s : scores) sum += s = std::exp(s - largest);
    for (double &s : scores) s /= sum;
    return scores;
}

// The indices of the `count` largest numbers, the largest first. If two are equal, the lower index
// comes first.
std::vector<int32_t> largest_of(const Row &numbers, int64_t count) {
    std::vector<int32_t> order(numbers.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return numbers[static_cast<size_t>(a)] > numbers[static_cast<size_t>(b)];
    });
    order.resize(static_cast<size_t>(count));
    return order;
}

// Sets the ranks of the experts in all groups but the best ones to -infinity.
void keep_groups(const keel_choose_experts_args &a, Row &ranks) {
    const size_t size = ranks.size() / a.groups;
    Row scores;
    for (size_t g = 0; g < a.groups; ++g) {
        Row group(ranks.begin() + static_cast<std::ptrdiff_t>(g * size),
                  ranks.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
        std::sort(group.begin(), group.end(), std::greater<>());
        scores.push_back(std::accumulate(group.begin(), group.begin() + a.group_top, 0.0));
    }
    std::vector<bool> kept(a.groups);
    for (const int32_t g : largest_of(scores, a.groups_kept)) kept[static_cast<size_t>(g)] = true;
    for (size_t i = 0; i < ranks.size(); ++i)
        if (!kept[i / size]) ranks[i] = -std::numeric_limits<double>::infinity();
}

} // namespace

void check_choose_experts(const keel_choose_experts_args &a) {
    need(a.logits, "logits", types_float, {any_size, any_size});
    const int64_t m = a.logits->shape[0], experts = a.logits->shape[1];
    need(a.index, "index", types_i32, {m, any_size});
    const int64_t k = a.index->shape[1];
    need(a.weights, "weights", types_f32, {m, k});
    need_that(k <= experts, "the number of chosen experts is larger than the number of experts");
    if (has(a.features, KEEL_CHOOSE_BIAS)) need(a.bias, "bias", types_f32, {experts});
    if (!has(a.features, KEEL_CHOOSE_GROUPS)) return;
    need_that(a.groups >= 1 && experts % a.groups == 0,
              "the number of groups must divide the number of experts");
    need_that(a.groups_kept >= 1 && a.groups_kept <= a.groups,
              "the number of kept groups must be from 1 to the number of groups");
    const int64_t size = experts / a.groups;
    need_that(a.group_top >= 1 && a.group_top <= size,
              "group_top must be from 1 to the number of experts of a group");
    need_that(k <= size * a.groups_kept, "the kept groups have fewer than k experts");
}

void run_choose_experts(const keel_choose_experts_args &a) {
    const View logits = bind(a.logits), index = bind(a.index), weights = bind(a.weights);
    const Row bias =
        has(a.features, KEEL_CHOOSE_BIAS) ? load(bind(a.bias), bind(a.bias).data) : Row();
    const bool groups = has(a.features, KEEL_CHOOSE_GROUPS);
    for (int64_t r = 0; r < logits.outer[2] && index.n != 0; ++r) {
        const Row row = load(logits, logits.row(r));
        Row chosen(static_cast<size_t>(index.n), no_number);
        std::vector<int32_t> best(chosen.size(), -1);
        if (all_finite(row)) {
            const Row scores = scores_of(row, has(a.features, KEEL_CHOOSE_SIGMOID));
            Row ranks = bias.empty() && !groups ? row : scores;
            for (size_t i = 0; i < bias.size(); ++i) ranks[i] += bias[i];
            if (all_finite(ranks)) {
                if (groups) keep_groups(a, ranks);
                best = largest_of(ranks, index.n);
                for (size_t j = 0; j < best.size(); ++j)
                    chosen[j] = scores[static_cast<size_t>(best[j])];
            }
        }
        double sum = std::accumulate(chosen.begin(), chosen.end(), 0.0);
        if (!has(a.features, KEEL_CHOOSE_NORMALIZE) || sum == 0) sum = 1;
        for (double &w : chosen) w = w / sum * static_cast<double>(a.scale);
        store(weights, weights.row(r), chosen);
        for (size_t j = 0; j < best.size(); ++j)
            View::set(index.row(r), static_cast<int64_t>(j), best[j]);
    }
}

namespace {

// The matrix of one expert, row by row.
class Expert {
  public:
    Expert(const keel_expert_matmul_args &a, int64_t expert, int64_t rows) {
        if (a.weight == nullptr) {
            const View w = bind(a.w);
            dtype_ = w.dtype, cols_ = w.n, stride_ = w.stride[2];
            parts_.push_back({w.row(expert * rows), rows});
            return;
        }
        const Weight &w = of(a.weight);
        dtype_ = w.dtype, cols_ = w.cols;
        stride_ =
            static_cast<int64_t>(keel_dtype_row_bytes(w.dtype, static_cast<uint64_t>(w.cols)));
        const size_t each = w.parts.size() / static_cast<size_t>(w.experts),
                     first = each * static_cast<size_t>(expert);
        for (size_t i = 0; i < each; ++i) parts_.push_back(w.parts[first + i]);
    }
    template <typename Body> void each_row(const Body &body) const {
        int64_t row = 0;
        for (const Weight::Part &part : parts_)
            for (int64_t i = 0; i < part.rows; ++i)
                body(row++, load(part.data + i * stride_, dtype_, cols_));
    }

  private:
    std::vector<Weight::Part> parts_;
    keel_dtype dtype_ = KEEL_DTYPE_NONE;
    int64_t cols_ = 0, stride_ = 0;
};

} // namespace

void check_expert_matmul(const keel_expert_matmul_args &a) {
    const bool sum = has(a.features, KEEL_EXPERTS_SUM);
    need_that(a.experts >= 1, "the number of experts must be at least 1");
    need(a.index, "index", types_i32, {any_size, any_size});
    const int64_t m = a.index->shape[0], top = a.index->shape[1];
    need(a.x, "x", types_float, {m, any_size, any_size});
    need_that(a.x->shape[1] == 1 || a.x->shape[1] == top,
              "dimension 1 of x must be 1 or the number of chosen experts");
    if (sum)
        need(a.out, "out", types_float, {m, any_size});
    else
        need(a.out, "out", types_float, {m, top, any_size});
    if (sum) need(a.weights, "weights", types_f32, {m, top});
    if (has(a.features, KEEL_EXPERTS_ACCUMULATE)) {
        need_that(sum, "accumulate needs KEEL_EXPERTS_SUM");
        need_that(a.out->dtype == KEEL_DTYPE_F32, "with accumulate, out must be f32");
    }
    const int64_t n = last_dim(a.out), k = a.x->shape[2];
    need_that(n <= std::numeric_limits<int64_t>::max() / a.experts, "W has too many rows");
    if (a.weight == nullptr) {
        need(a.w, "w", types_matrix, {a.experts * n, k});
        return;
    }
    const Weight &w = of(a.weight);
    need_that(w.experts == a.experts, "the weight has another number of experts");
    need_that(w.rows == a.experts * n, "the weight has another number of rows");
    need_that(w.cols == k, "the weight has another number of columns");
}

void run_expert_matmul(const keel_expert_matmul_args &a) {
    const View x = bind(a.x), out = bind(a.out), index = bind(a.index);
    const int64_t m = a.index->shape[0], top = a.index->shape[1], n = out.n;
    const bool shared = a.x->shape[1] == 1;
    // y[r * top + j]: the products. A row of an index that names no expert stays NaN.
    std::vector<Row> y(static_cast<size_t>(m * top), Row(static_cast<size_t>(n), no_number));
    for (int64_t expert = 0; expert < a.experts; ++expert) {
        std::vector<size_t> rows;
        std::vector<Row> inputs;
        for (int64_t r = 0; r < m; ++r)
            for (int64_t j = 0; j < top; ++j) {
                if (index.integer(r, j) != expert) continue;
                rows.push_back(static_cast<size_t>(r * top + j));
                inputs.push_back(load(x, x.row(r, shared ? 0 : j)));
            }
        if (rows.empty()) continue;
        Expert(a, expert, n).each_row([&](int64_t row, const Row &w) {
            for (size_t i = 0; i < rows.size(); ++i)
                y[rows[i]][static_cast<size_t>(row)] = dot(inputs[i], w);
        });
    }
    if (!has(a.features, KEEL_EXPERTS_SUM)) {
        for (int64_t r = 0; r < m; ++r)
            for (int64_t j = 0; j < top; ++j)
                store(out, out.row(r, j), y[static_cast<size_t>(r * top + j)]);
        return;
    }
    const View weights = bind(a.weights);
    for (int64_t r = 0; r < m; ++r) {
        Row sum = has(a.features, KEEL_EXPERTS_ACCUMULATE) ? load(out, out.row(r))
                                                           : Row(static_cast<size_t>(n), 0.0);
        for (int64_t j = 0; j < top; ++j)
            for (size_t i = 0; i < sum.size(); ++i)
                sum[i] += weights.number(r, j) * y[static_cast<size_t>(r * top + j)][i];
        store(out, out.row(r), sum);
    }
}

} // namespace keel::reference
