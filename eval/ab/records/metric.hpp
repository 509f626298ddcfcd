#pragma once

#include <string>
#include <string_view>

namespace keel::ab {

// The meaning of a metric. It follows from the metric's name alone, so records need no table of
// metrics.
struct Metric {
    enum class Kind {
        quality,    // hits, shares, scores
        divergence, // nll, kld: the distance from a text or from the reference
        speed,      // times and rates
        memory,     // bytes
    };
    Kind kind = Kind::quality;
    bool higher_is_better = true;
    bool ratio = false; // compared as A / B - 1; else as A - B

    bool is_quality() const { return kind == Kind::quality || kind == Kind::divergence; }
};

// Names "ppl" and "perplexity", and names that begin with "nll" or "kld": lower is better. Names
// with "..._per_second": speeds. Names with a word "ms", "us", "ns" or "seconds": times. Names with
// "bytes", "kib" or "mib": memory. All other names: scores, higher is better.
Metric metric_named(std::string_view name);

// Is it a distance from the reference ("kld", "top1")? The reference's own is 0, or 1 of top1, by
// definition.
bool is_distance(std::string_view name);

} // namespace keel::ab
