#pragma once

#include <string>
#include <string_view>

namespace keel::ab {

// The properties of a metric. The metric's name determines them, so results files need no table of
// metrics.
struct Metric {
    enum class Kind {
        quality,    // hits, shares and scores
        divergence, // nll and kld: the distance from a text or from the reference
        speed,      // times and rates
        memory,     // bytes
    };
    Kind kind = Kind::quality;
    bool higher_is_better = true;
    bool ratio = false; // true: compared as A / B - 1; false: as A - B

    bool is_quality() const { return kind == Kind::quality || kind == Kind::divergence; }
};

// Returns the properties of a metric. "ppl", "perplexity", and names that begin with "nll" or "kld"
// are divergences: lower is better. Names that end with "_per_second" are speeds. Names with a part
// "ms", "us", "ns" or "seconds" between underscores are times. Names with a part "bytes", "kib" or
// "mib" are memory. Names that match none of these rules are scores: higher is better.
Metric metric_named(std::string_view name);

// True if the metric is a distance from the reference ("kld", "top1"). By definition, the reference
// itself has kld 0 and top1 1.
bool is_distance(std::string_view name);

} // namespace keel::ab
