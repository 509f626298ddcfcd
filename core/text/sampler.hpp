#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace keel {

// The allowed values of a member of SamplingParams: low to high. The pipeline file and the API
// allow the same values.
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
    float temperature = 0.0F; // 0: greedy; other values: logits are divided by the temperature
    std::int32_t top_k = 0;   // keep this many of the most likely tokens; 0: keep all tokens
    // keep the most likely tokens until their probabilities reach this sum; 1: keep all tokens
    float top_p = 1.0F;
    // keep tokens with at least this probability, relative to the most likely token; 0: keep all
    // tokens
    float min_p = 0.0F;
    float repetition_penalty = 1.0F; // > 1 makes tokens of the history less likely; 1: off
    std::int32_t repetition_window =
        0; // only this many of the latest tokens are penalized; 0: the whole history
    std::uint64_t seed = 0;
};

// Throws Error(usage) if a value is out of its range. The error names the parameter, its range and
// the value.
void check_sampling_params(const SamplingParams &params);

// xoshiro256** (Blackman and Vigna), seeded by splitmix64. It gives equal numbers on every
// platform. The distributions of the standard library do not guarantee this.
class Rng {
  public:
    using State = std::array<std::uint64_t, 4>;
    explicit Rng(std::uint64_t seed) noexcept;
    std::uint64_t next() noexcept;
    // Returns a number in [0, 1), a multiple of 2^-53.
    double uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
    const State &state() const noexcept { return state_; }
    // Sets the state. A state of all zeros would never change, so it is replaced by the state of
    // seed 0.
    void restore(const State &state) noexcept;

  private:
    State state_;
};

// Draws the next token from logits. The steps and their order are equal to those of generate() in
// Hugging Face transformers, so equal settings have equal effects:
//   1. repetition penalty (CTRL's): once for each distinct token of the history, logit / p if
//                the logit is positive, else logit * p
//   2. temperature
//   3. top-k     keeps the k highest logits; if logits are equal, keeps the lower id
//   4. top-p     keeps the most likely of the remaining tokens, until they have the share top_p
//                of the probability of these tokens; at least one token
//   5. min-p     keeps those remaining tokens whose probability is at least min_p times the
//                highest one
//   6. one draw from the remaining tokens, with renormalized probabilities
// With temperature 0, takes the highest logit after step 1 and draws nothing. If logits are equal,
// takes the lowest id. (llama.cpp applies the temperature last. So with equal settings its top-p
// and min-p keep other tokens.)
//
// Equal logits, params and seed give equal tokens on every machine: the exponential and the sums
// are computed in double, with plain operations in a fixed order. Only the first call of sample()
// allocates memory. Only one thread may use an object.
class Sampler {
  public:
    struct Candidate {
        float logit = 0; // after the penalty, before the temperature
        std::int32_t id = 0;
        double weight = 0; // probability relative to the most likely token
    };

    explicit Sampler(const SamplingParams &params); // throws the errors of check_sampling_params()

    // Returns the id of the next token, an index into `logits`. `history` has the tokens so far,
    // oldest first. Ids that are not an index into logits are skipped. Throws Error(runtime) if a
    // logit is not finite, Error(usage) if there are no logits.
    std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> history);

    const SamplingParams &params() const noexcept { return params_; }
    // Returns the candidates of the latest draw. Empty after a greedy choice. Valid until the next
    // sample().
    std::span<const Candidate> candidates() const noexcept { return candidates_; }

    // Returns the state of the random numbers. A session stores this state, so that a loaded
    // session continues with the same random numbers.
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
    std::vector<double> weights_; // by id; only used without top-k
    std::vector<float> penalized_;
    std::vector<std::uint32_t> seen_; // for each id: the number of the last call that penalized the
                                      // token
    std::uint32_t stamp_ = 0;
};

} // namespace keel
