#pragma once

// Compares sessions with the golden logits of an architecture.

#include "run/golden.hpp"
#include "run/session.hpp"
#include "support/arch_miniature.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace keel::test {

// The float32 results of transformers differ from float64 by up to 5e-5 here.
inline constexpr double bound = 2e-4;

inline std::vector<std::string> exact(const std::filesystem::path &model,
                                      const std::string &backend,
                                      std::initializer_list<std::string> more = {}) {
    std::vector<std::string> sets{"model.path=" + model.string(), "model.weights=f32",
                                  "kv.dtype=f32", "strict=true", "backend.plugin=" + backend};
    if (backend == "cpu") sets.push_back("backend.params.compute=exact");
    sets.insert(sets.end(), more);
    return sets;
}

inline std::unique_ptr<Pipeline> open(const std::vector<std::string> &sets) {
    PipelineOptions options;
    options.need_tokenizer = false;
    return std::make_unique<Pipeline>(pipeline::config_from_overrides(sets), options);
}

// The larger of two differences. NaN counts as infinite, so that no bound accepts it.
inline double larger(double worst, double difference) {
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    return std::max(worst, std::abs(difference));
}

inline double worst_difference(std::span<const float> logits, const GoldenLogits &golden) {
    double worst = 0;
    for (size_t i = 0; i < golden.top_ids.size(); ++i)
        worst =
            larger(worst, logits[static_cast<size_t>(golden.top_ids[i])] - golden.top_values[i]);
    for (size_t i = 0; i < golden.every.size(); ++i)
        worst = larger(worst, logits[i * static_cast<size_t>(golden.stride)] - golden.every[i]);
    double sum = 0;
    for (const float v : logits) sum += std::exp(static_cast<double>(v) - golden.logsumexp);
    return larger(worst, std::log(sum));
}

inline int32_t argmax(std::span<const float> logits) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Checks the logits after the session's last token. Returns the number of records that the golden
// file has for this token.
inline int check_here(Session &session, const GoldenCase &golden, double most = bound) {
    const int64_t position = session.tokens() - 1;
    int records = 0;
    for (const GoldenLogits &expected : golden.logits) {
        if (expected.position != position) continue;
        CHECK(worst_difference(session.logits(), expected) < most);
        ++records;
    }
    REQUIRE(argmax(session.logits()) == golden.argmax[static_cast<size_t>(position)]);
    return records;
}

inline double largest_gap(std::span<const float> a, std::span<const float> b) {
    REQUIRE(a.size() == b.size());
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) worst = larger(worst, static_cast<double>(a[i]) - b[i]);
    return worst;
}

// The tokens that a cache with a protected prefix and a window keeps: the prefix, then the newest.
inline std::vector<int32_t> kept_by_window(const Session &session, std::ptrdiff_t prefix) {
    const std::vector<int32_t> all(session.history().begin(), session.history().end());
    const auto newest = static_cast<std::ptrdiff_t>(session.cache().cache().max_length()) - prefix;
    std::vector<int32_t> kept(all.begin(), all.begin() + prefix);
    kept.insert(kept.end(), all.end() - newest, all.end());
    return kept;
}

} // namespace keel::test
