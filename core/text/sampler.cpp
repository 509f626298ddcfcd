#include "text/sampler.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace keel {

namespace {

// If a token has less than e^-60 of the best token's probability, 53 random bits cannot draw it,
// for any size of vocabulary.
constexpr double negligible = -60.0;

// Computes e^x for x in [negligible, 0], with a relative error of about 1e-16. std::exp is not
// used, because libraries differ in the last bit. The function has only plain operations without
// branches, so compilers vectorize a loop over a vocabulary.
double portable_exp(double x) noexcept {
    constexpr double log2_e = 1.4426950408889634;
    constexpr double ln2_high = 0x1.62e42fee00000p-1;
    constexpr double ln2_low = 0x1.a39ef35793c76p-33;
    constexpr double rounder = 0x1.8p52; // after this number is added, the low bits of the sum hold
                                         // the nearest integer
    const double shifted = x * log2_e + rounder;
    const double k = shifted - rounder;
    const double r = (x - k * ln2_high) - k * ln2_low; // |r| <= ln(2) / 2
    // 1/n!, n = 13 ... 0
    constexpr double c[] = {1.0 / 6227020800.0,
                            1.0 / 479001600.0,
                            1.0 / 39916800.0,
                            1.0 / 3628800.0,
                            1.0 / 362880.0,
                            1.0 / 40320.0,
                            1.0 / 5040.0,
                            1.0 / 720.0,
                            1.0 / 120.0,
                            1.0 / 24.0,
                            1.0 / 6.0,
                            0.5,
                            1.0,
                            1.0};
    double sum = c[0];
    for (int n = 1; n < 14; ++n) sum = sum * r + c[n];
    const auto power = (std::bit_cast<std::uint64_t>(shifted) + 1023) << 52; // 2^k, k >= -87
    return sum * std::bit_cast<double>(power);
}

bool is_likelier(const Sampler::Candidate &a, const Sampler::Candidate &b) noexcept {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

void check_range(const char *name, double value, const SamplingRange &range) {
    if (!range.holds(value))
        throw_error(ErrorKind::usage, "sampling: {} must be from {} to {}, found {}", name,
                    range.low, range.high, value);
}

// Returns the lowest index of the highest logit. Throws if a logit is not finite.
std::size_t checked_argmax(std::span<const float> logits) {
    // One pass without branches: infinity and NaN times zero are NaN, and the sum stays NaN.
    float poison = 0.0F;
    for (const float logit : logits) poison += logit * 0.0F;
    if (poison != 0.0F || std::isnan(poison)) {
        for (std::size_t i = 0; i < logits.size(); ++i)
            if (!std::isfinite(logits[i]))
                throw_error(ErrorKind::runtime,
                            "logit {} of {} is {}: the model's output is not finite", i,
                            logits.size(), logits[i]);
    }
    return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) -
                                    logits.begin());
}

} // namespace

void check_sampling_params(const SamplingParams &p) {
    check_range("temperature", p.temperature, sampling_range::temperature);
    if (p.top_k < 0)
        throw_error(ErrorKind::usage, "sampling: top_k must be 0 (all) or more, found {}", p.top_k);
    check_range("top_p", p.top_p, sampling_range::top_p);
    check_range("min_p", p.min_p, sampling_range::min_p);
    check_range("repetition_penalty", p.repetition_penalty, sampling_range::repetition_penalty);
    if (p.repetition_window < 0)
        throw_error(ErrorKind::usage,
                    "sampling: repetition_window must be 0 (the whole history) or more, found {}",
                    p.repetition_window);
}

Rng::Rng(std::uint64_t seed) noexcept {
    for (std::uint64_t &word : state_) {
        seed += 0x9E3779B97F4A7C15U;
        std::uint64_t z = seed;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
        word = z ^ (z >> 31);
    }
}

std::uint64_t Rng::next() noexcept {
    const auto rotate = [](std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); };
    const std::uint64_t result = rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate(state_[3], 45);
    return result;
}

void Rng::restore(const State &state) noexcept {
    state_ = state == State{} ? Rng(0).state() : state;
}

Sampler::Sampler(const SamplingParams &params) : params_(params), rng_(params.seed) {
    check_sampling_params(params);
}

void Sampler::compute_weights(std::span<const float> logits, float highest) {
    weights_.resize(logits.size());
    const double top = highest;
    const double temperature = params_.temperature;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const double x = (static_cast<double>(logits[i]) - top) / temperature;
        const double w = portable_exp(std::max(x, negligible));
        weights_[i] = x < negligible ? 0.0 : w;
    }
}

std::span<const float> Sampler::penalize(std::span<const float> logits,
                                         std::span<const std::int32_t> history) {
    const float penalty = params_.repetition_penalty;
    if (penalty == 1.0F || history.empty()) return logits;
    const auto window = static_cast<std::size_t>(params_.repetition_window);
    if (window > 0 && window < history.size()) history = history.last(window);

    penalized_.assign(logits.begin(), logits.end());
    if (seen_.size() < logits.size()) seen_.resize(logits.size(), 0);
    if (++stamp_ == 0) { // the counter has wrapped around, so old stamps are invalid
        std::fill(seen_.begin(), seen_.end(), 0);
        stamp_ = 1;
    }
    for (const std::int32_t id : history) {
        if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) continue;
        const auto i = static_cast<std::size_t>(id);
        if (seen_[i] == stamp_) continue;
        seen_[i] = stamp_;
        penalized_[i] = penalized_[i] > 0.0F ? penalized_[i] / penalty : penalized_[i] * penalty;
    }
    return penalized_;
}

// Keeps the k most likely tokens, sorted. A heap holds them, with the least likely token at its
// front. For a small k this costs about one comparison per logit.
void Sampler::keep_top_k(std::span<const float> logits, std::size_t k) {
    const auto is_worse_top = is_likelier; // heap order: the front is the least likely
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const Candidate c{logits[i], static_cast<std::int32_t>(i), 0.0};
        if (candidates_.size() < k) {
            candidates_.push_back(c);
            if (candidates_.size() == k)
                std::make_heap(candidates_.begin(), candidates_.end(), is_worse_top);
            // an equal logit has a higher id, so it is not kept
        } else if (c.logit > candidates_.front().logit) {
            std::pop_heap(candidates_.begin(), candidates_.end(), is_worse_top);
            candidates_.back() = c;
            std::push_heap(candidates_.begin(), candidates_.end(), is_worse_top);
        }
    }
    std::sort(candidates_.begin(), candidates_.end(), is_likelier);
    const double top = candidates_.front().logit;
    for (Candidate &c : candidates_) {
        const double x =
            (static_cast<double>(c.logit) - top) / static_cast<double>(params_.temperature);
        c.weight = x < negligible ? 0.0 : portable_exp(x);
    }
}

// Keeps all tokens that can be drawn, sorted by id.
void Sampler::keep_all(std::span<const float> logits, float highest) {
    compute_weights(logits, highest);
    for (std::size_t i = 0; i < logits.size(); ++i)
        if (weights_[i] > 0.0)
            candidates_.push_back({logits[i], static_cast<std::int32_t>(i), weights_[i]});
}

// Keeps the smallest set of the most likely candidates whose sum is at least top_p * `total`,
// sorted. Sorts only as many candidates as it needs, often a few hundred.
void Sampler::keep_top_p(double total) {
    const double wanted = static_cast<double>(params_.top_p) * total;
    double mass = 0.0;
    std::size_t sorted = 0;
    for (std::size_t kept = 0; kept < candidates_.size(); ++kept) {
        if (kept == sorted) {
            sorted = std::min(candidates_.size(), std::max<std::size_t>(256, sorted * 4));
            const auto begin = candidates_.begin() + static_cast<std::ptrdiff_t>(kept);
            const auto middle = candidates_.begin() + static_cast<std::ptrdiff_t>(sorted);
            if (middle != candidates_.end())
                std::nth_element(begin, middle, candidates_.end(), is_likelier);
            std::sort(begin, middle, is_likelier);
        }
        mass += candidates_[kept].weight;
        if (mass >= wanted) {
            candidates_.resize(kept + 1);
            return;
        }
    }
}

std::int32_t Sampler::draw() {
    double total = 0.0;
    for (const Candidate &c : candidates_) total += c.weight;
    const double target = rng_.uniform() * total;
    double sum = 0.0;
    std::int32_t last = candidates_.front().id;
    for (const Candidate &c : candidates_) {
        sum += c.weight;
        if (c.weight > 0.0) last = c.id;
        if (target < sum) break;
    }
    return last;
}

std::int32_t Sampler::sample(std::span<const float> logits, std::span<const std::int32_t> history) {
    if (logits.empty() || logits.size() > static_cast<std::size_t>(INT32_MAX))
        throw_error(ErrorKind::usage, "sampling: {} logits; expected 1 to 2^31 - 1", logits.size());
    candidates_.clear();
    candidates_.reserve(logits.size());
    std::size_t best = checked_argmax(logits);
    const std::span<const float> scored = penalize(logits, history);
    // a penalty can make the largest floats overflow
    if (scored.data() != logits.data()) best = checked_argmax(scored);
    if (params_.temperature == 0.0F) return static_cast<std::int32_t>(best);

    const auto k = static_cast<std::size_t>(params_.top_k);
    const bool limited = k > 0 && k < scored.size();
    if (limited)
        keep_top_k(scored, k);
    else
        keep_all(scored, scored[best]);
    if (params_.top_p < 1.0F) {
        double total = 0.0;
        for (const Candidate &c : candidates_) total += c.weight;
        keep_top_p(total);
    }
    if (params_.min_p > 0.0F)
        std::erase_if(candidates_, [&](const Candidate &c) {
            return c.weight < static_cast<double>(params_.min_p);
        });
    return draw();
}

} // namespace keel
