#pragma once

#include "eval/ab/records/metric.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>

// A margin is the largest loss of a metric that does not matter. Each metric has its own margin, in
// its own unit.
namespace keel::ab {

// Margins by metric, in units of the effect: shares of 1 for "points" and "%", nats for "nats".
using Margins = std::map<std::string, double>;

// The unit of the metric's margin. "points" are percentage points, for hits and other shares.
// "nats" are per token, for nll. "%" is for metrics that are compared as a ratio: kld,
// perplexities, speeds, bytes.
const char *margin_unit(const Metric &metric);

// Is it a margin of the metric: at least 0, and less than 1 for shares and ratios?
bool is_margin(double margin, const Metric &metric);

// Reads "5 points", "0.02 nats" or "10%". The unit must be the metric's unit. Returns nothing for
// any other text, and for 100 points, 100% or more.
std::optional<double> parse_margin(std::string_view text, const Metric &metric);

// The margin in the form that parse_margin() reads.
std::string margin_text(double margin, const Metric &metric);

// The declared margin of a metric. Without one, the default: 1 point, 0.01 nats, 10% of kld, 5% of
// speeds, 1% of perplexities and bytes.
double margin_of(const Margins &margins, const std::string &name);

} // namespace keel::ab
