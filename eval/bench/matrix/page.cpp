#include "eval/bench/matrix/page.hpp"

#include "base/display.hpp"
#include "bench_files.hpp"
#include "eval/page/html.hpp"
#include "eval/page/line_chart.hpp"
#include "eval/page/text_table.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <utility>

namespace keel {
namespace {

std::string escaped(std::string_view text) {
    return html_escaped(printable(text, 500));
}

std::string text_cell(std::string_view text) {
    return "<td>" + escaped(text) + "</td>";
}

std::string number_cell(const std::optional<double> &value, const std::function<std::string(double)> &shown) {
    if (!value) return "<td class=n data-v=\"-1\">-</td>";
    return fmt::format("<td class=n data-v=\"{:.9g}\">{}</td>", *value, escaped(shown(*value)));
}

std::string rate_cells(const std::optional<BenchRate> &rate) {
    const auto percent = [](double v) { return fmt::format("{:.0f}%", 100 * v); };
    if (!rate) return number_cell({}, rate_text) + text_cell("-") + number_cell({}, percent);
    return number_cell(rate->median, rate_text) +
           text_cell(rate->min == rate->max ? "-" : rate_text(rate->min) + ".." + rate_text(rate->max)) +
           number_cell(rate->share, percent);
}

std::string bytes_text(double value) {
    return format_bytes(static_cast<uint64_t>(std::clamp(value, 0.0, 1e18)));
}

std::string table(const std::vector<BenchLine> &lines) {
    std::string out = "<div class=scroll><table><thead><tr>";
    for (const char *head : {"model",           "weights", "backend",   "KV",
                             "policy",          "sync",    "prompt",    "prefill tokens/s",
                             "range",           "of peak", "depth",     "at once",
                             "decode tokens/s", "range",   "of read",   "KV bytes",
                             "memory",          "load s",  "read GB/s", "machine",
                             "version",         "commit",  "date",      "file"})
        out += fmt::format("<th>{}</th>", head);
    out += "</tr></thead><tbody>\n";
    const auto as_number = [](const std::optional<int64_t> &n) {
        return n ? std::optional(static_cast<double>(*n)) : std::nullopt;
    };
    const auto plain = [](double v) { return fmt::format("{:.0f}", v); };
    for (const BenchLine &l : lines) {
        out +=
            "<tr>" + text_cell(l.model) + text_cell(l.weights) + text_cell(l.backend) +
            text_cell(l.kv) + text_cell(l.policy) + text_cell(l.sync) +
            number_cell(as_number(l.prefill_tokens), plain) + rate_cells(l.prefill) +
            number_cell(as_number(l.depth), plain) +
            number_cell(l.decode ? as_number(l.sequences) : std::nullopt, plain) +
            rate_cells(l.decode) + number_cell(l.kv_bytes, bytes_text) +
            number_cell(l.peak_bytes, bytes_text) +
            number_cell(l.load_seconds, [](double v) { return fmt::format("{:.2f}", v); }) +
            number_cell(l.read_bandwidth, [](double v) { return fmt::format("{:.1f}", v / 1e9); }) +
            text_cell(l.machine) + text_cell(l.version) + text_cell(l.commit) + text_cell(l.date) +
            text_cell(l.file) + "</tr>\n";
    }
    return out + "</tbody></table></div>\n";
}

struct Bar {
    std::string label;
    double value = 0, min = 0, max = 0;
    std::string shown;
    size_t colour = 0;
};

std::string bars(const std::vector<Bar> &all) {
    constexpr double left = 430, width = 560, step = 20;
    double most = 0;
    for (const Bar &bar : all)
        most = std::max(most, bar.max);
    if (all.empty() || most <= 0) return "<p class=note>nothing measured</p>\n";
    const auto x = [&](double v) { return left + width * v / most; };
    std::string out = fmt::format("<svg width=\"{:.0f}\" height=\"{:.0f}\" role=img>\n", left + width + 110,
                                  step * static_cast<double>(all.size()) + 4);
    double y = 2;
    for (const Bar &bar : all) {
        out += fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", left - 8, y + 13,
                           escaped(bar.label));
        out += fmt::format("<rect x=\"{:.0f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"14\" "
                           "fill=\"{}\"><title>{}</title></rect>",
                           left, y + 2, x(bar.value) - left, chart_colour(bar.colour), escaped(bar.shown));
        if (bar.max > bar.min)
            out += fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#888\" stroke-width=\"2\"/>",
                               x(bar.min), y + 9, x(bar.max));
        out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x(bar.max) + 6, y + 13,
                           escaped(bar.shown));
        y += step;
    }
    return out + "</svg>\n";
}

// Configurations in the order of their first line: a colour each.
std::map<std::string, size_t> colour_of(const std::vector<BenchLine> &lines) {
    std::map<std::string, size_t> out;
    for (const BenchLine &l : lines)
        out.try_emplace(l.name, out.size());
    return out;
}

std::string decode_name(const BenchLine &l) {
    return l.sequences == 1 ? l.name : fmt::format("{} / {} at once", l.name, l.sequences);
}

// Decoding speed over the depth, a line for each configuration that was measured at two depths or more.
std::string depth_chart(const std::vector<BenchLine> &lines) {
    std::map<std::string, std::vector<std::pair<double, double>>> series;
    std::map<std::string, size_t> colour;
    const auto colours_by_name = colour_of(lines);
    for (const BenchLine &l : lines) {
        if (!l.decode || !l.depth) continue;
        series[decode_name(l)].emplace_back(static_cast<double>(*l.depth), l.decode->median);
        colour[decode_name(l)] = colours_by_name.at(l.name);
    }
    std::erase_if(series, [](const auto &one) { return one.second.size() < 2; });
    std::vector<LineSeries> drawn;
    for (auto &[name, points] : series)
        drawn.push_back({name, chart_colour(colour.at(name)), std::move(points)});
    const std::string chart = line_chart(std::move(drawn), ChartScale::linear);
    return chart.empty() ? chart : "<h2>Decoding over the depth, tokens/s</h2>\n" + chart;
}

} // namespace

std::string bench_html(const std::vector<BenchLine> &lines, const std::string &title) {
    const auto colour = colour_of(lines);
    std::vector<Bar> decode, prefill, memory;
    std::map<std::string, bool> seen;
    for (const BenchLine &l : lines) {
        const size_t c = colour.at(l.name);
        if (l.decode && l.depth)
            decode.push_back({fmt::format("{} at {}", decode_name(l), *l.depth), l.decode->median,
                              l.decode->min, l.decode->max, rate_text(l.decode->median), c});
        if (l.prefill && l.prefill_tokens)
            prefill.push_back({fmt::format("{}, {} tokens", l.name, *l.prefill_tokens), l.prefill->median,
                               l.prefill->min, l.prefill->max, rate_text(l.prefill->median), c});
        if (l.peak_bytes && !std::exchange(seen[l.file], true))
            memory.push_back({fmt::format("{}{}", l.name, l.depth ? fmt::format(" at {}", *l.depth) : ""),
                              *l.peak_bytes, *l.peak_bytes, *l.peak_bytes, bytes_text(*l.peak_bytes), c});
    }
    std::string out = fmt::format(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>{2}<title>{0}</title><style>\n{1}"
        "</style></head>\n<body><h1>{0}</h1>\n",
        escaped(title), page_css, bench_html_mark);
    out += fmt::format(
        "<p class=note>{} lines. Bars and points are medians; grey strokes reach from the slowest to the "
        "fastest repeat. Shares are of limits that were measured in between. A click on a heading sorts."
        "</p>\n",
        lines.size());
    out += "<h2>Runs</h2>\n" + table(lines);
    out += "<h2>Decoding, tokens/s</h2>\n" + bars(decode);
    out += depth_chart(lines);
    out += "<h2>Prefill, tokens/s</h2>\n" + bars(prefill);
    out += "<h2>Memory at most</h2>\n" + bars(memory);
    return out + fmt::format("<script>\n{}</script></body></html>\n", sort_js);
}

} // namespace keel
