#include "eval/evictions/history.hpp"

#include "base/counted.hpp"
#include "base/display.hpp"
#include "base/json_writer.hpp"
#include "eval/page/page.hpp"
#include "evictions_files.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace keel {
namespace {

constexpr size_t most_panels = 512, most_cells = 600'000, most_evictions = 2000;

std::string summary(const LogTotals &t) {
    std::string triggers;
    for (const auto &[name, count] : t.triggers)
        triggers += fmt::format("{}{} {}", triggers.empty() ? "" : ", ", name, count);
    const std::string allocators = fmt::format("{}", fmt::join(t.allocators, ", "));
    return fmt::format(
        "{} in {}, policy {}{} | triggers: {} | {} tokens evicted (counted in the head "
        "that lost most) | blocks freed: {} at most in one eviction, {} in total "
        "| duration of an eviction: median {:.0f} µs, p99 {:.0f} µs, longest {:.0f} µs"
        "{}{}",
        counted(t.evictions, "eviction"), counted(t.sequences, "sequence"),
        fmt::join(t.policies, ", "), allocators.empty() ? "" : ", allocator " + allocators,
        triggers, t.slots, format_bytes(t.freed_most), format_bytes(t.freed_bytes), t.us_median,
        t.us_p99, t.us_max, t.acts_on.empty() ? "" : " | ", t.acts_on);
}

// Writes for each eviction the length of the longest head of one layer, before and after the
// eviction.
void write_slots(JsonWriter &json, const LogHistory &history, const LogView &view) {
    const std::vector<LogLayer> layers = log_layers(history, view.sequence);
    const auto chosen = std::find_if(layers.begin(), layers.end(), [&](const LogLayer &l) {
        return l.layer == view.layer.value_or(l.layer);
    });
    json.key("slots");
    if (chosen == layers.end()) {
        json.null();
        return;
    }
    json.begin_object().member("layer", chosen->layer).key("evictions").begin_array();
    const size_t step = (chosen->lines.size() + most_evictions - 1) / most_evictions;
    for (size_t n = 0; n < chosen->lines.size(); n += step) {
        const LogLine &line = history.lines[chosen->lines[n]];
        json.begin_array().value(line.tokens).value(line.held).value(line.kept_max);
        json.value(line.trigger).value(line.pressure).end_array();
    }
    json.end_array().end_object();
}

// Returns the shares row by row, in the form that page/charts.js reads. The first row has the last
// tokens.
std::string shares_text(const KeepPicture &p) {
    std::string out;
    for (size_t bin = p.bins; bin-- > 0;) {
        for (size_t column = 0; column < p.at.size(); ++column) {
            const float share = p.share[column * p.bins + bin];
            out += share < 0 ? ' ' : page_shade(share);
        }
    }
    return out;
}

void write_panels(JsonWriter &json, const LogHistory &history, const LogView &view) {
    std::vector<LogLayer> layers = log_layers(history, view.sequence);
    std::erase_if(layers, [&](const LogLayer &l) { return view.layer && l.layer != *view.layer; });
    if (layers.size() > most_panels) layers.resize(most_panels);
    size_t heads = 0;
    for (const LogLayer &layer : layers) heads += view.head ? 1 : layer.heads;
    const bool means = heads > most_panels;
    const size_t count = std::max<size_t>(means ? layers.size() : heads, 1);
    const size_t cells = std::max<size_t>(most_cells / count, 400);
    const size_t columns = std::clamp<size_t>(cells / 100, 20, 540);
    const size_t bins = std::clamp<size_t>(cells / columns, 20, 260);
    json.key("panels").begin_array();
    const auto add = [&](const LogLayer &layer, std::optional<uint32_t> head) {
        const KeepPicture p = keep_picture(history, layer, head, columns, bins);
        if (p.at.empty()) return;
        const std::string name =
            head ? fmt::format("layer {} head {}", layer.layer, *head)
                 : fmt::format("layer {}, mean of {} heads", layer.layer, layer.heads);
        json.begin_object().member("layer", layer.layer);
        json.member("title", fmt::format("{}: {}, tokens 0 to {}", name,
                                         counted(layer.lines.size(), "eviction"), p.tokens - 1));
        json.member("columns", p.at.size()).member("bins", p.bins).member("shares", shares_text(p));
        json.end_object();
    };
    for (const LogLayer &layer : layers) {
        if (means) add(layer, std::nullopt);
        for (uint32_t h = 0; !means && h < layer.heads; ++h) {
            if (!view.head || *view.head == h) add(layer, h);
        }
    }
    json.end_array();
}

void write_layers(JsonWriter &json, const LogTotals &t) {
    json.key("layers").begin_object().key("columns").begin_array();
    for (const char *column : {"layer", "heads", "evictions", "min", "mean", "max", "freed"})
        json.value(column);
    json.end_array().key("rows").begin_array();
    for (const LogTotals::Layer &l : t.layers) {
        json.begin_array().value(l.layer).value(l.heads).value(l.lines).value(l.kept_min);
        json.value(l.kept_sum / static_cast<double>(l.lines))
            .value(l.kept_max)
            .value(l.freed_bytes);
        json.end_array();
    }
    json.end_array().end_object();
}

} // namespace

std::string log_html(const LogHistory &history, const LogView &view) {
    const LogTotals totals = log_totals(history);
    JsonWriter json;
    json.begin_object().member("file", history.file).member("summary", summary(totals));
    json.member("cutOff", history.is_cut_off);
    json.member("sequence", view.sequence.value_or(longest_sequence(history)));
    write_slots(json, history, view);
    write_panels(json, history, view);
    write_layers(json, totals);
    json.end_object();
    return page_html({"Evictions", log_html_mark, json.take(), page_js, log_text(history, view)});
}

} // namespace keel
