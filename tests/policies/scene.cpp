#include "policies/scene.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace keel::test {
namespace {

constexpr float garbage = std::numeric_limits<float>::quiet_NaN();

uint64_t scramble(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

double dot(const std::vector<double> &a, const std::vector<double> &b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

void softmax(std::vector<double> &x) {
    const double largest = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (double &v : x) sum += v = std::exp(v - largest);
    for (double &v : x) v /= sum;
}

} // namespace

double scene_noise(uint64_t seed, uint64_t index) {
    return static_cast<double>(scramble(seed ^ scramble(index)) >> 40) * 0x1p-23 - 1.0;
}

Scene::Scene(uint64_t seed, uint32_t heads, uint32_t kv_heads, uint32_t head_dim, int64_t length,
             bool interleaved, std::vector<double> frequencies)
    : seed_(seed), heads_(heads), kv_heads_(kv_heads), head_dim_(head_dim), length_(length),
      stride_(length + 3), interleaved_(interleaved),
      scale_(1 / std::sqrt(static_cast<double>(head_dim))), frequencies_(std::move(frequencies)) {
    const auto fill = [&](std::vector<Row> &rows, uint64_t from, uint32_t n, double size) {
        for (uint32_t h = 0; h < n; ++h) {
            for (int64_t t = 0; t < length; ++t) {
                Row &row = rows.emplace_back();
                for (uint32_t i = 0; i < head_dim; ++i)
                    row.push_back(
                        size *
                        scene_noise(from, (static_cast<uint64_t>(t) * n + h) * head_dim + i));
            }
        }
    };
    fill(queries_, seed, heads, 2.5);
    fill(keys_, seed + 1, kv_heads, 1.5);
    fill(values_, seed + 2, kv_heads, 1.0);
    for (size_t i = 0; i < queries_.size(); ++i)
        rotated_queries_.push_back(rotated(queries_[i], static_cast<int64_t>(i) % length));
    for (size_t i = 0; i < keys_.size(); ++i)
        rotated_keys_.push_back(rotated(keys_[i], static_cast<int64_t>(i) % length));
    attend();
}

Scene::Row Scene::rotated(const Row &x, int64_t position) const {
    Row out = x;
    for (size_t i = 0; i < frequencies_.size(); ++i) {
        const size_t a = interleaved_ ? 2 * i : i,
                     b = interleaved_ ? 2 * i + 1 : i + frequencies_.size();
        const double angle = static_cast<double>(position) * frequencies_[i];
        out[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
        out[b] = x[b] * std::cos(angle) + x[a] * std::sin(angle);
    }
    return out;
}

double &Scene::probability(uint32_t head, int64_t query, int64_t key) {
    return probabilities_[static_cast<size_t>((head * length_ + query) * length_ + key)];
}

void Scene::attend() {
    probabilities_.assign(heads_ * static_cast<size_t>(length_ * length_), 0);
    for (uint32_t h = 0; h < heads_; ++h) {
        for (int64_t q = 0; q < length_; ++q) {
            Row row;
            for (int64_t t = 0; t <= q; ++t)
                row.push_back(scale_ * dot(rotated_queries_[static_cast<size_t>(h * length_ + q)],
                                           key(h / (heads_ / kv_heads_), t)));
            softmax(row);
            for (int64_t t = 0; t <= q; ++t) probability(h, q, t) = row[static_cast<size_t>(t)];
        }
    }
}

// Returns the attention of the last `window` queries (0: all), reduced over the queries and then
// over the group.
std::vector<float> Scene::reduced(uint32_t window, uint32_t queries, uint32_t group) {
    const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, length_ - window);
    const uint32_t of_group = heads_ / kv_heads_,
                   rows = group == KEEL_REDUCE_NONE ? heads_ : kv_heads_;
    const auto add = [](double &to, double x, uint32_t how) {
        to = how == KEEL_REDUCE_MAX ? std::max(to, x) : to + x;
    };
    std::vector<float> out(rows * static_cast<size_t>(stride_), garbage);
    for (int64_t t = 0; t < length_; ++t) {
        std::vector<double> sums(rows, 0);
        for (uint32_t h = 0; h < heads_; ++h) {
            double of_head = 0;
            for (int64_t q = first; q < length_; ++q) add(of_head, probability(h, q, t), queries);
            if (queries == KEEL_REDUCE_MEAN) of_head /= static_cast<double>(length_ - first);
            if (group == KEEL_REDUCE_MEAN) of_head /= of_group;
            add(sums[group == KEEL_REDUCE_NONE ? h : h / of_group], of_head, group);
        }
        for (uint32_t r = 0; r < rows; ++r)
            out[static_cast<size_t>(r * stride_ + t)] = static_cast<float>(sums[r]);
    }
    return out;
}

// Returns attention without a causal mask, summed over the queries in the slot's own piece. The
// mean over the group is used.
std::vector<float> Scene::chunks(uint32_t chunk) {
    std::vector<float> out(kv_heads_ * static_cast<size_t>(stride_), garbage);
    const uint32_t group = heads_ / kv_heads_;
    for (uint32_t h = 0; h < kv_heads_; ++h) {
        for (int64_t begin = 0; begin < length_; begin += chunk) {
            const int64_t end = std::min<int64_t>(length_, begin + chunk);
            Row sums(static_cast<size_t>(end - begin));
            for (uint32_t g = 0; g < group; ++g) {
                for (int64_t q = begin; q < end; ++q) {
                    Row row;
                    for (int64_t t = begin; t < end; ++t)
                        row.push_back(scale_ * dot(rotated_queries_[static_cast<size_t>(
                                                       (h * group + g) * length_ + q)],
                                                   key(h, t)));
                    softmax(row);
                    for (size_t i = 0; i < row.size(); ++i) sums[i] += row[i] / group;
                }
            }
            for (size_t i = 0; i < sums.size(); ++i)
                out[static_cast<size_t>(h * stride_ + begin) + i] = static_cast<float>(sums[i]);
        }
    }
    return out;
}

keel_policy_input Scene::input(const keel_policy_needs &needs, int32_t budget) {
    const size_t cells = kv_heads_ * static_cast<size_t>(stride_), d = head_dim_;
    lengths_.assign(kv_heads_, static_cast<int32_t>(length_));
    budgets_.assign(kv_heads_, budget);
    mask_.assign(cells, 0);
    keel_policy_input in = {KEEL_HEADER(keel_policy_input)};
    in.trigger = KEEL_TRIGGER_PREFILL_END;
    in.kv_heads = kv_heads_;
    in.heads = heads_;
    in.next_position = length_;
    in.stride = stride_;
    in.lengths = lengths_.data();
    in.budgets = budgets_.data();
    in.protected_mask = mask_.data();
    const auto wants = [&](uint64_t bit) { return (needs.needs & bit) != 0; };
    const auto each_key = [&](auto &&action) { // calls action(index, KV head, slot)
        for (uint32_t h = 0; h < kv_heads_; ++h)
            for (int64_t t = 0; t < length_; ++t)
                action(static_cast<size_t>(h * stride_ + t), h, t);
    };
    if (wants(KEEL_NEED_POSITIONS)) {
        positions_.assign(cells, -1);
        each_key(
            [&](size_t cell, uint32_t, int64_t t) { positions_[cell] = static_cast<int32_t>(t); });
        in.positions = positions_.data();
    }
    if (wants(KEEL_NEED_KEY_NORMS)) {
        key_norms_.assign(cells, garbage);
        each_key([&](size_t cell, uint32_t h, int64_t t) {
            key_norms_[cell] = static_cast<float>(std::sqrt(dot(key(h, t), key(h, t))));
        });
        in.key_norms = key_norms_.data();
    }
    if (wants(KEEL_NEED_VALUE_NORMS)) {
        value_norms_.assign(cells, garbage);
        each_key([&](size_t cell, uint32_t h, int64_t t) {
            const Row &v = values_[static_cast<size_t>(h * length_ + t)];
            value_norms_[cell] = static_cast<float>(std::sqrt(dot(v, v)));
        });
        in.value_norms = value_norms_.data();
    }
    if (wants(KEEL_NEED_WINDOW_SCORES | KEEL_NEED_RUNNING_SCORES | KEEL_NEED_REPLAY)) {
        scores_ = reduced(wants(KEEL_NEED_WINDOW_SCORES) ? needs.window : 0, needs.reduce_queries,
                          needs.reduce_group);
        in.scores = scores_.data();
        in.query_count =
            wants(KEEL_NEED_WINDOW_SCORES) ? std::min<int64_t>(length_, needs.window) : length_;
    }
    if (wants(KEEL_NEED_KEY_SUM | KEEL_NEED_KEY_ANCHOR)) {
        std::vector<double> sum(kv_heads_ * d);
        each_key([&](size_t, uint32_t h, int64_t t) {
            for (size_t i = 0; i < d; ++i)
                sum[h * d + i] += key(h, t)[i] / std::sqrt(dot(key(h, t), key(h, t)));
        });
        key_sum_.assign(sum.begin(), sum.end());
        key_anchor_.assign(cells, garbage);
        each_key([&](size_t cell, uint32_t h, int64_t t) {
            const Row anchor(sum.begin() + static_cast<std::ptrdiff_t>(h * d),
                             sum.begin() + static_cast<std::ptrdiff_t>((h + 1) * d));
            key_anchor_[cell] = static_cast<float>(dot(key(h, t), anchor));
        });
        in.key_sum = wants(KEEL_NEED_KEY_SUM) ? key_sum_.data() : nullptr;
        in.key_anchor = wants(KEEL_NEED_KEY_ANCHOR) ? key_anchor_.data() : nullptr;
    }
    // uses the golden file's projection; the policy's computation does not depend on which one it
    // is
    if (wants(KEEL_NEED_KEY_PROJECT)) {
        const uint32_t r = needs.projection_cols;
        key_project_.assign(cells * r, garbage);
        each_key([&](size_t cell, uint32_t h, int64_t t) {
            const Row &k = wants(KEEL_NEED_UNROTATED) ? keys_[static_cast<size_t>(h * length_ + t)]
                                                      : key(h, t);
            for (uint32_t c = 0; c < r; ++c) {
                double sum = 0;
                for (size_t i = 0; i < d; ++i) sum += k[i] * scene_noise(seed_ + 3, i * r + c);
                key_project_[cell * r + c] = static_cast<float>(sum);
            }
        });
        in.key_project = key_project_.data();
    }
    if (wants(KEEL_NEED_QUERY_STATS)) {
        std::vector<double> sum(heads_ * d), second(heads_ * d * d);
        const int64_t skip = std::min<int64_t>(length_, needs.skip_queries);
        for (uint32_t h = 0; h < heads_; ++h) {
            for (int64_t t = skip; t < length_; ++t) {
                const Row &q = queries_[static_cast<size_t>(h * length_ + t)];
                for (size_t i = 0; i < d; ++i) {
                    sum[h * d + i] += q[i];
                    for (size_t j = 0; j < d; ++j) second[(h * d + i) * d + j] += q[i] * q[j];
                }
            }
        }
        query_sum_.assign(sum.begin(), sum.end());
        query_second_.assign(second.begin(), second.end());
        in.query_sum = query_sum_.data();
        in.query_second = query_second_.data();
        in.query_count = length_ - skip;
    }
    if (wants(KEEL_NEED_KEYS)) {
        all_keys_.assign(cells * d, garbage);
        each_key([&](size_t cell, uint32_t h, int64_t t) {
            const Row &k = wants(KEEL_NEED_UNROTATED) ? keys_[static_cast<size_t>(h * length_ + t)]
                                                      : key(h, t);
            std::copy(k.begin(), k.end(),
                      all_keys_.begin() + static_cast<std::ptrdiff_t>(cell * d));
        });
        in.keys = all_keys_.data();
    }
    if (wants(KEEL_NEED_CHUNK_SCORES)) {
        chunk_scores_ = chunks(needs.chunk);
        in.chunk_scores = chunk_scores_.data();
    }
    return in;
}

} // namespace keel::test
