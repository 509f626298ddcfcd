#pragma once

#include <string>
#include <string_view>

namespace keel {

// What a number of an experiment means, from its name alone, so that records need no table of their
// own.
struct AbMetric {
    enum class Kind {
        quality,    // hits, shares, scores
        divergence, // nll, kld: how far from a text or from the reference
        speed,      // times and rates
        memory,     // bytes
    };
    Kind kind = Kind::quality;
    bool higher_is_better = true;
    bool ratio = false; // compared as A / B - 1, not as A - B

    bool is_quality() const { return kind == Kind::quality || kind == Kind::divergence; }
};

// "nll", "kld" and names that begin with them, "ppl", "perplexity": lower is better.
// "..._per_second": a speed. A word "ms", "us", "ns" or "seconds" in the name: a time. "bytes",
// "kib", "mib": memory. Anything else: a score, higher is better.
AbMetric ab_metric(std::string_view name);

// Is it a distance from the reference ("kld", "top1")? The reference's own is 0, or 1 of top1, by
// definition.
bool ab_is_distance(std::string_view name);

} // namespace keel
