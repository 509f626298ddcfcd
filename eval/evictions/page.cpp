#include "eval/evictions/history.hpp"

#include "base/counted.hpp"
#include "base/display.hpp"
#include "eval/page/html.hpp"
#include "evictions_files.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace keel {
namespace {

constexpr size_t most_panels = 512, most_cells = 600'000;

std::string escaped(std::string_view text) {
    return html_escaped(printable(text, 500));
}

// 0: nothing is left, 4: all.
int shade(float share) {
    if (share <= 0) return 0;
    if (share < 0.34f) return 1;
    if (share < 0.67f) return 2;
    return share < 0.999f ? 3 : 4;
}

// Evictions from left to right, positions from the bottom to the top. Neighbours of one shade are one rectangle; a path for each shade.
std::string panel(const KeepPicture &p, double width, double height) {
    const double x = width / static_cast<double>(p.at.size()), y = height / static_cast<double>(p.bins);
    std::string paths[5], background;
    for (size_t c = 0; c < p.at.size(); ++c) {
        const float *row = p.share.data() + c * p.bins;
        for (size_t b = 0; b < p.bins;) {
            size_t end = b + 1;
            const bool is_there = row[b] >= 0;
            while (end < p.bins && (row[end] >= 0) == is_there && shade(row[end]) == shade(row[b]))
                ++end;
            const std::string box =
                fmt::format("M{:.1f} {:.1f}h{:.1f}v{:.1f}h-{:.1f}z", x * static_cast<double>(c),
                            height - y * static_cast<double>(end), x, y * static_cast<double>(end - b), x);
            if (is_there && shade(row[b]) == 0) background += box;
            if (is_there && shade(row[b]) > 0) paths[shade(row[b])] += box;
            b = end;
        }
    }
    std::string out = fmt::format("<svg width=\"{:.0f}\" height=\"{:.0f}\" role=img>", width, height);
    if (!background.empty()) out += fmt::format("<path class=bg d=\"{}\"/>", background);
    for (int k = 1; k <= 4; ++k) {
        if (!paths[k].empty()) out += fmt::format("<path class=k{} d=\"{}\"/>", k, paths[k]);
    }
    return out + "</svg>";
}

std::string panels(const LogHistory &history, const LogView &view) {
    std::vector<LogLayer> layers = log_layers(history, view.sequence);
    std::erase_if(layers, [&](const LogLayer &l) { return view.layer && l.layer != *view.layer; });
    if (layers.size() > most_panels) layers.resize(most_panels);
    size_t heads = 0;
    for (const LogLayer &layer : layers)
        heads += view.head ? 1 : layer.heads;
    if (heads == 0) return {};
    const bool means = heads > most_panels;
    const size_t count = means ? layers.size() : heads;
    const double width = count <= 4    ? 540
                         : count <= 16 ? 260
                                       : 130,
                 height = count <= 4    ? 260
                          : count <= 16 ? 150
                                        : 90;
    const size_t share = std::max<size_t>(most_cells / count, 400);
    const size_t columns = std::clamp<size_t>(share / 100, 20, static_cast<size_t>(width));
    const size_t bins = std::clamp<size_t>(share / columns, 20, static_cast<size_t>(height));
    std::string out;
    for (const LogLayer &layer : layers) {
        std::string row;
        const auto add = [&](std::optional<uint32_t> head) {
            const KeepPicture p = keep_picture(history, layer, head, columns, bins);
            if (p.at.empty()) return;
            row += fmt::format("<figure>{}<figcaption>{}: {}, tokens 0 to {}</figcaption></figure>\n",
                               panel(p, width, height),
                               head ? fmt::format("layer {} head {}", layer.layer, *head)
                                    : fmt::format("layer {}, mean of {} heads", layer.layer, layer.heads),
                               counted(layer.lines.size(), "eviction"), p.tokens - 1);
        };
        if (means) add(std::nullopt);
        for (uint32_t h = 0; !means && h < layer.heads; ++h) {
            if (!view.head || *view.head == h) add(h);
        }
        // A line for each layer, where that fills one.
        const bool is_line = !means && !view.head && layer.heads * width > 600;
        if (!row.empty()) out += is_line ? "<div class=panels>" + row + "</div>\n" : row;
    }
    if (out.empty())
        return "<p class=note>The log does not say which tokens were kept; policy.log_positions: true makes "
               "it.</p>\n";
    return "<p class=note>Evictions from left to right, the text's tokens from the bottom (its beginning) to "
           "the top. The darker, the "
           "more of a stretch was left; grey: nothing; white: not there yet.</p>\n" +
           std::string("<div class=panels>") + out + "</div>\n";
}

// Slots of the longest head before and after each eviction, over the tokens seen; pressure in red.
std::string slots_chart(const LogHistory &history, const LogView &view) {
    const std::vector<LogLayer> layers = log_layers(history, view.sequence);
    if (layers.empty()) return {};
    const auto chosen = std::find_if(layers.begin(), layers.end(), [&](const LogLayer &l) {
        return l.layer == view.layer.value_or(l.layer);
    });
    if (chosen == layers.end()) return {};
    constexpr double left = 60, width = 1000, top = 10, height = 200;
    constexpr size_t most_marks = 2000;
    double tokens = 1, slots = 1;
    for (const size_t i : chosen->lines) {
        tokens = std::max(tokens, static_cast<double>(history.lines[i].tokens));
        slots = std::max(slots, static_cast<double>(history.lines[i].held));
    }
    const auto x = [&](double v) { return left + width * v / tokens; };
    const auto y = [&](double v) { return top + height * (1 - v / slots); };
    std::string path, marks;
    bool pressed = false;
    const size_t step = (chosen->lines.size() + most_marks - 1) / most_marks;
    for (size_t n = 0; n < chosen->lines.size(); n += std::max<size_t>(step, 1)) {
        const LogLine &line = history.lines[chosen->lines[n]];
        const auto at = static_cast<double>(line.tokens);
        path += fmt::format("{}{:.1f} {:.1f}V{:.1f}", path.empty() ? "M" : "L", x(at),
                            y(static_cast<double>(line.held)), y(static_cast<double>(line.kept_max)));
        const bool pressure = line.trigger == "pressure";
        pressed = pressed || pressure;
        marks += fmt::format(
            "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"><title>{} at {} tokens: {} to "
            "{}{}{}</title></circle>",
            x(at), y(static_cast<double>(line.kept_max)), pressure ? 4 : 2, pressure ? "#c02020" : "#3572b0",
            escaped(line.trigger), line.tokens, line.held, line.kept_max, line.pressure.empty() ? "" : "; ",
            escaped(line.pressure));
    }
    std::string out = fmt::format(
        "<h2>Slots of the longest head of layer {} before and after each eviction</h2>\n<svg width=\"1120\" "
        "height=\"{:.0f}\" role=img><path d=\"M{:.0f} {:.0f}V{:.0f}H{:.0f}\" fill=\"none\" stroke=\"#999\"/>",
        chosen->layer, height + 45, left, top, top + height, left + width);
    for (int i = 0; i <= 4; ++i) {
        out += fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">{:.0f}</text>", left - 6,
                           y(slots * i / 4) + 4, slots * i / 4);
        out += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{:.0f}</text>",
                           x(tokens * i / 4), top + height + 16, tokens * i / 4);
    }
    out += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">tokens seen</text>",
                       left + width / 2, top + height + 32);
    return out +
           fmt::format("<path class=line d=\"{}\" fill=\"none\" stroke-width=\"1\"/>{}</svg>\n", path,
                       marks) +
           (pressed ? "<p class=note>Red: memory was short.</p>\n" : "");
}

std::string tables(const LogTotals &t) {
    std::string out = "<h2>Layers</h2>\n<table><thead><tr>";
    for (const char *head : {"layer", "heads", "evictions", "kept min", "kept mean", "kept max", "freed"})
        out += fmt::format("<th>{}</th>", head);
    out += "</tr></thead><tbody>\n";
    for (const LogTotals::Layer &l : t.layers)
        out += fmt::format(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td><td>{}</td><td>{}</td></tr>\n",
            l.layer, l.heads, l.lines, l.kept_min, l.kept_sum / static_cast<double>(l.lines), l.kept_max,
            format_bytes(l.freed_bytes));
    return out + "</tbody></table>\n";
}

} // namespace

std::string log_html(const LogHistory &history, const LogView &view) {
    const LogTotals t = log_totals(history);
    std::string triggers;
    for (const auto &[name, count] : t.triggers)
        triggers += fmt::format("{}{} {}", triggers.empty() ? "" : ", ", name, count);
    std::string out =
        fmt::format("<!doctype html>\n<html lang=en><head><meta "
                    "charset=utf-8>{}<title>Evictions</title><style>\n{}</style></head>\n"
                    "<body><h1>Evictions of {}</h1>\n",
                    log_html_mark, page_css, escaped(history.file));
    out += fmt::format(
        "<p>{} in {}, policy {}{} | triggers: {} | {} tokens evicted (of the head that "
        "lost "
        "most), {} freed | time of an eviction: median {:.0f} &micro;s, p99 {:.0f} &micro;s, longest {:.0f} "
        "&micro;s</p>\n",
        counted(t.evictions, "eviction"), counted(t.sequences, "sequence"),
        escaped(fmt::format("{}", fmt::join(t.policies, ", "))),
        t.allocators.empty() ? ""
                             : ", allocator " + escaped(fmt::format("{}", fmt::join(t.allocators, ", "))),
        escaped(triggers), t.slots, format_bytes(t.freed_bytes), t.us_median, t.us_p99, t.us_max);
    if (history.is_cut_off) out += "<p class=note>The last line is cut off and left out.</p>\n";
    out += slots_chart(history, view);
    out += fmt::format("<h2>Kept tokens over time, sequence {}</h2>\n",
                       view.sequence.value_or(longest_sequence(history)));
    out += panels(history, view);
    return out + tables(t) + "</body></html>\n";
}

} // namespace keel
