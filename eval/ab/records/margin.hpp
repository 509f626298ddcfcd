#pragma once

#include "eval/ab/records/metric.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>

// Margins: the largest loss of a metric that does not matter. Each metric has its own, in its own
// unit.
namespace keel {

// By metric, in units of the effect: shares of 1 for "points" and "%", nats for "nats".
using AbMargins = std::map<std::string, double>;

// "points" (percentage points, of hits and other shares), "nats" (a token, of nll), or "%" (of what
// is compared as a ratio: kld, perplexities, speeds, bytes).
const char *ab_margin_unit(const AbMetric &metric);

// Is it a margin of the metric: at least 0, and less than 1 for shares and ratios?
bool is_ab_margin(double margin, const AbMetric &metric);

// "5 points", "0.02 nats", "10%": the unit has to be the metric's. Nothing for anything else, and
// for 100 points or % and more.
std::optional<double> parse_ab_margin(std::string_view text, const AbMetric &metric);

// The margin as parse_ab_margin() takes it.
std::string ab_margin_text(double margin, const AbMetric &metric);

// The declared margin of a metric, else the default: 1 point, 0.01 nats; 10% of kld, 5% of speeds,
// 1% of perplexities and bytes.
double ab_margin_of(const AbMargins &margins, const std::string &name);

} // namespace keel
