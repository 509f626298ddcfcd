// Writes verdicts as text.
#include "eval/ab/verdicts/equal_bytes.hpp"

#include "base/display.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

namespace keel::ab {

const char *verdict_name(Verdict verdict) {
    switch (verdict) {
    case Verdict::better: return "better";
    case Verdict::worse: return "worse";
    case Verdict::equal: return "equal in every item";
    case Verdict::none: return "no item in common";
    case Verdict::exploratory: return "exploratory";
    case Verdict::too_few: return "too few documents";
    case Verdict::size: return "size";
    case Verdict::not_distinguishable: break;
    }
    return "not distinguishable";
}

std::string number_text(double value) {
    const double size = std::abs(value);
    if (size == 0) return "0";
    if (size >= 100) return fmt::format("{:.1f}", value);
    if (size >= 10) return fmt::format("{:.2f}", value);
    if (size >= 0.01) return fmt::format("{:.3f}", value);
    if (size >= 0.001) return fmt::format("{:.4f}", value);
    if (size >= 0.0001) return fmt::format("{:.5f}", value);
    return fmt::format("{:.1e}", value);
}

std::string effect_text(double effect, bool ratio) {
    if (ratio)
        return fmt::format("{}{:.{}f}%", effect > 0 ? "+" : "", 100 * effect,
                           std::abs(effect) < 0.1 ? 2 : 1);
    return fmt::format("{}{}", effect > 0 ? "+" : "", number_text(effect));
}

std::string effect_text(const Contrast &c, double effect) {
    // The size of kld has no sign. The size of top1 has a sign, because its effect is top1 - 1.
    if (c.is_size && !c.meaning.higher_is_better) return number_text(effect);
    return effect_text(effect, c.ratio);
}

std::string detectable_text(const Contrast &c) {
    if (!c.detectable) return "nothing";
    return c.ratio ? fmt::format("{:.{}f}%", 100 * *c.detectable, *c.detectable < 0.1 ? 2 : 1)
                   : number_text(*c.detectable);
}

std::string p_text(const std::optional<double> &p) {
    if (!p) return "-";
    if (*p < 0.0001) return "<0.0001";
    return *p < 0.01 ? fmt::format("{:.4f}", *p) : fmt::format("{:.3f}", *p);
}

std::string interval_text(const Contrast &c) {
    if (!c.interval) return "-";
    return fmt::format("{}{}, {}{}", c.low_is_open ? "(" : "[", effect_text(c, c.interval->low),
                       effect_text(c, c.interval->high), c.high_is_open ? ")" : "]");
}

std::string margins_text(const std::vector<Contrast> &contrasts) {
    std::map<std::string, std::string> margins;
    for (const Contrast &c : contrasts)
        if (c.margin)
            margins[c.metric] =
                fmt::format("{} {}", printable(c.metric, 60), margin_text(*c.margin, c.meaning));
    std::string out;
    for (const auto &[metric, text] : margins) out += (out.empty() ? "" : ", ") + text;
    return out.empty() ? "none" : out;
}

std::string bytes_text(double bytes) {
    return format_bytes(static_cast<uint64_t>(std::clamp(bytes, 0.0, 1e18)));
}

std::string arm_text(const std::string &arm, const std::string &budget) {
    const std::string shown = printable(arm, 60);
    return budget.empty() || budget == "full"
               ? shown
               : fmt::format("{} at {}", shown, printable(budget, 80));
}

std::string protocol_text(const std::string &protocol) {
    return protocol.empty() ? "" : fmt::format(" ({})", printable(protocol, 40));
}

std::string interpolated_text(bool interpolated) { return interpolated ? " (interpolated)" : ""; }

std::string apart_text(const Apart &apart) {
    const auto range = [](const Interval &r) {
        return r.low == r.high ? bytes_text(r.low)
                               : fmt::format("{} to {}", bytes_text(r.low), bytes_text(r.high));
    };
    return fmt::format("{} holds {} and {} holds {} on {}{}: {} ({:.0f}%) apart",
                       arm_text(apart.a, apart.a_budget), range(apart.a_bytes),
                       arm_text(apart.b, apart.b_budget), range(apart.b_bytes),
                       printable(apart.task, 60), protocol_text(apart.protocol),
                       bytes_text(apart.gap_bytes()), 100 * apart.gap_share());
}

std::string verdict_line(const Contrast &c) {
    std::string a = arm_text(c.a, c.a_budget);
    const std::string b = arm_text(c.b, c.b_budget) + interpolated_text(c.b_interpolated);
    if (c.kind == Contrast::Kind::equal_bytes)
        a += fmt::format("{} where both hold {}", interpolated_text(c.a_interpolated),
                         bytes_text(c.at_bytes));
    const std::string what = fmt::format(
        "{} {}{}{}", printable(c.task, 60), printable(c.metric, 60),
        c.length < 0 ? "" : fmt::format(" after {} tokens", c.length), protocol_text(c.protocol));
    if (c.items == 0) return fmt::format("{} and {} have no item of {} in common", a, b, what);
    const char *says = c.verdict == Verdict::better                ? "is better than"
                       : c.verdict == Verdict::worse               ? "is worse than"
                       : c.verdict == Verdict::equal               ? "is equal in every item to"
                       : c.verdict == Verdict::not_distinguishable ? "is not distinguishable from"
                                                                   : "against";
    std::string out = fmt::format("{} {} {} on {}: {}", a, says, b, what, effect_text(c, c.effect));
    if (c.interval) out += fmt::format(" {}", interval_text(c));
    if (c.p)
        out += fmt::format(", p = {} ({}, Holm over {})", p_text(c.p_adjusted), c.method,
                           c.family_size);
    out += fmt::format(", {} items in {} documents", c.items, c.clusters);
    if (c.is_size) {
        out += c.geometric ? "; a size, the geometric mean over documents" : "; a size";
    } else if (!c.planned && !c.label.empty()) {
        out += "; " + c.label;
    } else if (!c.planned || !c.enough) {
        out += c.planned ? "; too few documents for a verdict" : "; exploratory";
    } else if (!c.detectable) {
        out += "; an experiment of this size can show no effect";
        // A detectable effect of 0 means that the numbers have no spread. So the numbers do not
        // show which effect could have been seen.
    } else if (*c.detectable > 0) {
        out += "; an experiment of this size could have seen " + detectable_text(c);
    }
    if (c.kind == Contrast::Kind::equal_bytes)
        out += fmt::format("; at the peak {} against {}", bytes_text(c.a_peak_bytes),
                           bytes_text(c.b_peak_bytes));
    if (c.within_margin && c.margin) {
        out += fmt::format("; within the margin of {} (p = {})", margin_text(*c.margin, c.meaning),
                           p_text(c.p_within_adjusted()));
    } else if (c.non_inferior && c.margin) {
        out += fmt::format("; non-inferior by the margin of {} (p = {})",
                           margin_text(*c.margin, c.meaning), p_text(c.p_non_inferior_adjusted));
    }
    if (c.planned && !c.label.empty()) out += "; " + c.label;
    if (c.is_equal_rerun) out += ": a rerun, equal to the bit";
    return out;
}

} // namespace keel::ab
