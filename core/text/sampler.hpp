#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace keel {

// What a number of SamplingParams may be: low to high. The pipeline file and the API refuse the
// same values.
struct SamplingRange {
    double low, high;

    constexpr bool holds(double value) const noexcept { return value >= low && value <= high; }
};
namespace sampling_range {
inline constexpr SamplingRange temperature{0, 1e6};
inline constexpr SamplingRange top_p{0, 1};
inline constexpr SamplingRange min_p{0, 1};
inline constexpr SamplingRange repetition_penalty{1e-3, 1e3};
} // namespace sampling_range

struct SamplingParams {
    float temperature = 0.0F; // 0: greedy; else logits are divided by it
    std::int32_t top_k = 0;   // keep this many of the most likely tokens; 0: all
    float top_p = 1.0F;       // keep the most likely tokens until they have this mass; 1: all
    float min_p = 0.0F; // keep tokens at least this likely, relative to the most likely one; 0: all
    float repetition_penalty = 1.0F; // > 1 makes tokens of the history less likely; 1: off
    std::int32_t repetition_window =
        0; // look at this many of the latest tokens only; 0: the whole history
    std::uint64_t seed = 0;
};

// Throws Error (usage) that names the parameter, its range and the value.
void check_sampling_params(const SamplingParams &params);

// xoshiro256** (Blackman and Vigna), seeded through splitmix64. The same numbers everywhere; the
// standard library's distributions are not.
class Rng {
  public:
    using State = std::array<std::uint64_t, 4>;
    explicit Rng(std::uint64_t seed) noexcept;
    std::uint64_t next() noexcept;
    // In [0, 1), a multiple of 2^-53.
    double uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
    const State &state() const noexcept { return state_; }
    // A state of all zeros would stay so; it is replaced by that of seed 0.
    void restore(const State &state) noexcept;

  private:
    State state_;
};

// Draws the next token from logits. The steps and their order are those of Hugging Face
// transformers' generate(), so that a configuration means the same here and there:
//   1. repetition penalty (CTRL's): once for each distinct token of the history, logit / p if
//                the logit is positive, else logit * p
//   2. temperature
//   3. top-k     the k highest logits; ties at the edge go to the lower id, so that exactly k stay
//   4. top-p     of these, by falling probability, the smallest set that has at least the share
//                top_p of their probability; at least one token
//   5. min-p     of these, those with probability >= min_p times the highest one's
//   6. one draw over the rest, renormalized
// Temperature 0 takes the highest logit after step 1 (ties: the lowest id) and draws nothing.
// (llama.cpp applies the temperature last, which makes top-p and min-p keep other sets at the same
// numbers.)
//
// Same logits, params and seed give the same tokens on every machine: the exponential and the sums
// are computed in double with plain operations in a fixed order. sample() allocates in its first
// call only. For one thread.
class Sampler {
  public:
    struct Candidate {
        float logit = 0; // after the penalty, before the temperature
        std::int32_t id = 0;
        double weight = 0; // probability relative to the most likely token's
    };

    explicit Sampler(const SamplingParams &params); // checks them

    // The next token's id, an index into `logits`. `history`: the tokens so far, oldest first;
    // those that are no index into logits are passed over. Throws Error (runtime) for a logit that
    // is not finite, Error (usage) for no logits.
    std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> history);

    const SamplingParams &params() const noexcept { return params_; }
    // What the latest draw chose from; empty after a greedy one. Valid until the next sample().
    std::span<const Candidate> candidates() const noexcept { return candidates_; }

    // A session that is stored and taken up again goes on drawing the same numbers.
    const Rng::State &rng_state() const noexcept { return rng_.state(); }
    void restore_rng(const Rng::State &state) noexcept { rng_.restore(state); }

  private:
    std::span<const float> penalize(std::span<const float> logits,
                                    std::span<const std::int32_t> history);
    void keep_top_k(std::span<const float> logits, std::size_t k);
    void keep_all(std::span<const float> logits, float highest);
    void keep_top_p(double total);
    std::int32_t draw();
    void compute_weights(std::span<const float> logits, float highest);

    SamplingParams params_;
    Rng rng_;
    std::vector<Candidate> candidates_;
    std::vector<double> weights_; // per id, only where no top-k comes first
    std::vector<float> penalized_;
    std::vector<std::uint32_t> seen_; // per id: the stamp of the call that penalized it
    std::uint32_t stamp_ = 0;
};

} // namespace keel
