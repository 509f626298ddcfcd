#include "eval/ab/verdicts/labels.hpp"
#include "eval/ab/verdicts/summary.hpp"

#include "base/display.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace keel::ab {
namespace {

using TextRow = std::vector<std::string>;

// Returns the number of characters of a text, not of bytes.
size_t width(const std::string &text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }));
}

// Formats rows as aligned columns, two spaces apart. Columns in `right` are aligned to the right.
std::string aligned(const std::vector<TextRow> &rows, const std::vector<bool> &right) {
    std::vector<size_t> widths(right.size());
    for (const TextRow &row : rows)
        for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
    std::string out;
    for (const TextRow &row : rows) {
        std::string line;
        for (size_t i = 0; i < row.size(); ++i) {
            const std::string pad(widths[i] - width(row[i]), ' ');
            line += fmt::format("{}{}{}", i == 0 ? "" : "  ", right[i] ? pad : row[i],
                                right[i] ? row[i] : pad);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        out += line + '\n';
    }
    return out;
}

std::string verdict_cell(const Contrast &c) {
    if (!c.label.empty() && !c.planned) return c.label;
    std::string out = verdict_name(c.verdict);
    if (c.verdict == Verdict::not_distinguishable) {
        if (!c.detectable) {
            out += " (too few documents)";
        } else {
            out += fmt::format(" (could see {})", detectable_text(c));
        }
    }
    if (!c.label.empty()) out += "; " + c.label;
    if (c.within_margin) {
        out += ", within the margin";
    } else if (c.non_inferior && c.verdict != Verdict::better) {
        out += ", non-inferior";
    }
    return out;
}

using Choice = std::vector<const Contrast *>;

template <typename Wanted> Choice chosen(const std::vector<Contrast> &all, Wanted wanted) {
    Choice out;
    for (const Contrast &c : all)
        if (wanted(c)) out.push_back(&c);
    return out;
}

void add_section(std::string &out, const std::string &title, Choice contrasts, size_t most) {
    if (contrasts.empty()) return;
    const size_t all = contrasts.size();
    contrasts.resize(std::min(all, most));
    out += fmt::format("\n{}\n{}", title, contrast_table(contrasts));
    if (all > most) out += fmt::format("... and {} more: see report.html\n", all - most);
}

std::string place_text(const Warning &w) {
    std::string out;
    for (const std::string *part : {&w.arm, &w.budget, &w.protocol, &w.task})
        if (!part->empty())
            out += fmt::format("{}{}", out.empty() ? "" : ", ", printable(*part, 60));
    return out.empty() ? out : out + ": ";
}

} // namespace

std::string contrast_table(const Choice &contrasts) {
    const auto any = [&](auto has) { return std::any_of(contrasts.begin(), contrasts.end(), has); };
    const bool protocols = any([](const Contrast *c) { return !c->protocol.empty(); });
    const bool bytes =
        any([](const Contrast *c) { return c->kind == Contrast::Kind::equal_bytes; });
    const bool planned = any([](const Contrast *c) { return c->planned; });
    const bool labelled = any([](const Contrast *c) { return !c->label.empty(); });
    std::vector<TextRow> rows;
    std::vector<bool> right;
    const auto column = [&](bool wanted, const char *title, bool to_right, auto text) {
        if (!wanted) return;
        if (rows.empty()) rows.resize(contrasts.size() + 1);
        rows[0].emplace_back(title);
        right.push_back(to_right);
        for (size_t i = 0; i < contrasts.size(); ++i) rows[i + 1].push_back(text(*contrasts[i]));
    };
    const auto number = [](const Contrast &c, double value) {
        return c.items > 0 ? number_text(value) : "-";
    };
    const auto arm = [&](const std::string &name, const std::string &budget, bool interpolated) {
        return bytes ? arm_text(name, budget) + interpolated_text(interpolated)
                     : printable(name, 30);
    };
    column(true, "arm", false,
           [&](const Contrast &c) { return arm(c.a, c.a_budget, c.a_interpolated); });
    column(true, bytes ? "held" : "budget", bytes, [&](const Contrast &c) {
        return bytes ? bytes_text(c.at_bytes) : printable(c.a_budget, 20);
    });
    column(true, "against", false,
           [&](const Contrast &c) { return arm(c.b, c.b_budget, c.b_interpolated); });
    column(bytes, "peaks", false, [](const Contrast &c) {
        return bytes_text(c.a_peak_bytes) + ", " + bytes_text(c.b_peak_bytes);
    });
    column(true, "on", false, [](const Contrast &c) {
        return printable(c.task + " " + c.metric, 50) +
               (c.length < 0 ? "" : fmt::format(" @{}", c.length));
    });
    column(protocols, "protocol", false,
           [](const Contrast &c) { return printable(c.protocol, 20); });
    column(true, "A", true, [&](const Contrast &c) { return number(c, c.mean_a); });
    column(true, "B", true, [&](const Contrast &c) { return number(c, c.mean_b); });
    column(true, "effect", true,
           [](const Contrast &c) { return c.items > 0 ? effect_text(c, c.effect) : "-"; });
    column(true, "interval", false, [](const Contrast &c) { return interval_text(c); });
    column(planned, "p", true, [](const Contrast &c) {
        return p_text(c.p ? std::optional(c.p_adjusted) : std::nullopt);
    });
    column(true, "n", true, [](const Contrast &c) { return std::to_string(c.items); });
    column(planned || labelled, "verdict", false, verdict_cell);
    return aligned(rows, right);
}

std::string summary_text(const Summary &s) {
    const Statistics &how = s.header.statistics;
    using Kind = Contrast::Kind;
    const Choice planned = chosen(s.contrasts, [](const Contrast &c) { return c.planned; });
    std::string out = fmt::format(
        "{}{} records; reference {}; primary {}; margins: {}\n",
        s.header.title.empty() ? "" : printable(s.header.title, 100) + ": ", s.records,
        s.header.reference.empty() ? "none" : printable(s.header.reference, 60),
        s.primary.empty() ? "none" : printable(s.primary, 120), margins_text(s.contrasts));
    out += plan_line(s.header) + "\n";
    out +=
        fmt::format("Planned contrasts: {}. Their intervals of {:g}% hold together, p is adjusted "
                    "by Holm's method, and a verdict agrees with its interval. All others are "
                    "exploratory: each interval is of {:g}% by itself, and there is no verdict.\n",
                    planned.size(), 100 * how.confidence, 100 * how.confidence);
    const auto other = [](Kind kind, bool is_quality) {
        return [=](const Contrast &c) {
            return c.kind == kind && !c.planned && !c.is_size &&
                   c.meaning.is_quality() == is_quality;
        };
    };
    const auto on_primary = [&](const Contrast &c) {
        return !c.planned && c.meaning.is_quality() &&
               (c.task == s.primary || c.task + "/" + c.metric == s.primary);
    };
    const auto pair_on_primary = [&](const Contrast &c) {
        return c.kind == Kind::pair && on_primary(c);
    };
    constexpr size_t first = 40, further = 16, last = 12;
    add_section(out, "Planned contrasts", planned, first);
    add_section(out, "Sizes: distance from the reference; kld as geometric mean over documents",
                chosen(s.contrasts, [](const Contrast &c) { return c.is_size; }), further);
    add_section(out, "Exploratory: against the reference",
                chosen(s.contrasts, other(Kind::reference, true)), further);
    add_section(out, "Exploratory: between arms at the same budget, on the primary metric",
                chosen(s.contrasts, pair_on_primary), last);
    add_section(out,
                "Exploratory: at equal bytes, on the primary metric. No verdict: which bytes two "
                "arms share is known only after the run, and no run held interpolated bytes",
                chosen(s.equal_bytes, on_primary), last);
    add_section(out, "Exploratory: speed against the reference",
                chosen(s.contrasts, other(Kind::reference, false)), last);
    constexpr size_t most = 12;
    if (!s.apart.empty()) {
        out += "\n";
        for (size_t i = 0; i < std::min(s.apart.size(), most / 3); ++i)
            out += fmt::format("not compared at equal bytes: {}\n", apart_text(s.apart[i]));
        if (s.apart.size() > most / 3)
            out +=
                fmt::format("... and {} more pairs: see report.html\n", s.apart.size() - most / 3);
    }
    if (!s.warnings.empty() || !s.notes.empty()) out += "\n";
    for (size_t i = 0; i < std::min(s.warnings.size(), most); ++i)
        out += fmt::format("warning: {}{}\n", place_text(s.warnings[i]),
                           printable(s.warnings[i].text, 300));
    if (s.warnings.size() > most)
        out += fmt::format("... and {} more warnings: see report.html\n", s.warnings.size() - most);
    for (const std::string &note : s.notes) out += fmt::format("note: {}\n", printable(note, 500));
    return out;
}

} // namespace keel::ab
