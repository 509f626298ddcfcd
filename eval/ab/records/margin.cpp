#include "eval/ab/records/margin.hpp"

#include <charconv>
#include <cmath>
#include <fmt/format.h>

namespace keel::ab {
namespace {

constexpr double largest_nats = 1e6;

bool is_in_nats(const Metric &metric) {
    return metric.kind == Metric::Kind::divergence && !metric.ratio;
}

} // namespace

const char *margin_unit(const Metric &metric) {
    return metric.ratio ? "%" : is_in_nats(metric) ? "nats" : "points";
}

bool is_margin(double margin, const Metric &metric) {
    return margin >= 0 && margin < (is_in_nats(metric) ? largest_nats : 1);
}

std::optional<double> parse_margin(std::string_view text, const Metric &metric) {
    double value = 0;
    const char *end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc()) return std::nullopt;
    std::string_view unit(rest, static_cast<size_t>(end - rest));
    while (unit.starts_with(' ')) unit.remove_prefix(1);
    const std::string_view wanted = margin_unit(metric);
    const bool is_singular = wanted == "points" && unit == "point";
    if (unit != wanted && !is_singular) return std::nullopt;
    if (!is_in_nats(metric)) value /= 100;
    if (!is_margin(value, metric)) return std::nullopt;
    return value;
}

std::string margin_text(double margin, const Metric &metric) {
    if (is_in_nats(metric)) return fmt::format("{:g} nats", margin);
    // The rounding gives 7 for 0.07, instead of 7.000000000000001.
    const double percent = std::round(margin * 1e10) / 1e8;
    if (metric.ratio) return fmt::format("{:g}%", percent);
    return fmt::format("{:g} {}", percent, percent == 1 ? "point" : "points");
}

double margin_of(const Margins &margins, const std::string &name) {
    if (const auto found = margins.find(name); found != margins.end()) return found->second;
    const Metric metric = metric_named(name);
    if (metric.kind == Metric::Kind::speed) return 0.05;
    const bool is_kld = metric.kind == Metric::Kind::divergence && metric.ratio &&
                        name.find("kld") != std::string::npos;
    return is_kld ? 0.1 : 0.01;
}

} // namespace keel::ab
