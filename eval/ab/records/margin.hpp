#pragma once

#include "eval/ab/records/metric.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>

// A margin is the largest loss in a metric that does not matter to the user. Each metric has its
// own margin, in its own unit.
namespace keel::ab {

// Margins by the name of the metric. The margins are in units of the effect: shares of 1 for
// "points" and "%", nats for "nats".
using Margins = std::map<std::string, double>;

// The unit of the metric's margin: "points" (percentage points) for hits and all further shares;
// "nats" (per token) for nll; "%" for metrics that are compared as a ratio (kld, perplexities,
// speeds, bytes).
const char *margin_unit(const Metric &metric);

// True if the number is a possible margin of the metric: at least 0, and for shares and ratios less
// than 1.
bool is_margin(double margin, const Metric &metric);

// Reads a text such as "5 points", "0.02 nats" or "10%". The unit must be the metric's unit.
// Returns nullopt if the text has another form, and for margins of 100 points, 100% or more.
std::optional<double> parse_margin(std::string_view text, const Metric &metric);

// The margin in the form that parse_margin() reads.
std::string margin_text(double margin, const Metric &metric);

// Returns the margin of the metric `name` in `margins`. If `margins` does not have the metric,
// returns the default: 1 point, 0.01 nats, 10% for kld, 5% for speeds, 1% for perplexities and
// bytes.
double margin_of(const Margins &margins, const std::string &name);

} // namespace keel::ab
