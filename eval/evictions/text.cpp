#include "eval/evictions/history.hpp"

#include "base/counted.hpp"
#include "base/display.hpp"
#include "base/error.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

constexpr size_t text_columns = 72, text_rows = 14, most_pictures = 64;

// The character for the share of a bin's tokens that are left.
char shade(float share) {
    if (share < 0) return ' ';
    if (share <= 0) return '.';
    if (share < 0.34f) return ':';
    if (share < 0.67f) return '+';
    return share < 0.999f ? '*' : '#';
}

std::string draw(const KeepPicture &picture) {
    std::string out;
    for (size_t c = 0; c < picture.at.size(); ++c) {
        out += fmt::format("  {:>9} |", picture.at[c]);
        for (size_t b = 0; b < picture.bins; ++b) out += shade(picture.share[c * picture.bins + b]);
        out += fmt::format("| {}\n", picture.why[c]);
    }
    return out;
}

std::string picture_title(const KeepPicture &picture) {
    return picture.head ? fmt::format("layer {} head {}", picture.layer, *picture.head)
                        : fmt::format("layer {}, mean of its heads", picture.layer);
}

const LogLayer *find_layer(const std::vector<LogLayer> &layers, uint32_t index) {
    const auto found = std::find_if(layers.begin(), layers.end(),
                                    [&](const LogLayer &l) { return l.layer == index; });
    return found == layers.end() ? nullptr : &*found;
}

// Returns the layers that the view selects. Throws Error(usage) if the log does not have these
// layers.
std::vector<LogLayer> chosen_layers(const LogHistory &history, const LogView &view) {
    std::vector<LogLayer> layers = log_layers(history, view.sequence);
    if (layers.empty() && !history.lines.empty() && view.sequence)
        throw_error(ErrorKind::usage, "--sequence: {} has no sequence {}", history.file,
                    *view.sequence);
    if (view.layer) {
        const LogLayer *layer = find_layer(layers, *view.layer);
        if (layer == nullptr)
            throw_error(ErrorKind::usage,
                        "--layer: {} has no eviction in layer {} of this sequence", history.file,
                        *view.layer);
        layers = {LogLayer(*layer)};
    }
    if (view.head) {
        for (const LogLayer &layer : layers) {
            if (*view.head >= layer.heads)
                throw_error(ErrorKind::usage,
                            "--head: in {}, layer {} has {} heads, so there is no head {}",
                            history.file, layer.layer, layer.heads, *view.head);
        }
    }
    return layers;
}

// Draws the cache after each eviction. If there are few heads, or if the user selects a head, draws
// single heads. Otherwise draws the mean over the heads.
std::string pictures(const LogHistory &history, const LogView &view) {
    const std::vector<LogLayer> layers = chosen_layers(history, view);
    size_t heads = 0;
    for (const LogLayer &layer : layers) heads += layer.heads;
    const bool single = view.head.has_value() || view.layer.has_value() || heads <= 4;
    std::string out;
    size_t drawn = 0;
    const auto add = [&](const LogLayer &layer, std::optional<uint32_t> head) {
        const KeepPicture picture = keep_picture(history, layer, head, text_rows, text_columns);
        if (picture.at.empty() || ++drawn > most_pictures) return;
        out += fmt::format("\n{}: tokens 0 to {} from left to right\n{}", picture_title(picture),
                           picture.tokens - 1, draw(picture));
    };
    for (const LogLayer &layer : layers) {
        if (!single) {
            add(layer, std::nullopt);
            continue;
        }
        for (uint32_t h = 0; h < std::min<uint32_t>(layer.heads, most_pictures); ++h) {
            if (!view.head || *view.head == h) add(layer, h);
        }
    }
    if (out.empty())
        return "\nThe log has no positions of kept tokens. To get them, run again with "
               "policy.log_positions: true.\n";
    out = "\nThe cache after evictions. One character stands for some neighbouring tokens: '#' all "
          "of "
          "them\nare left, '*' most, '+' about half, ':' few, '.' none; ' ' they did not exist "
          "yet.\n" +
          out;
    if (drawn > most_pictures)
        out += fmt::format("\n{} more drawings are left out; select one with --layer and --head\n",
                           drawn - most_pictures);
    else if (!single)
        out += "\nTo draw each head of a layer, use --layer N.\n";
    return out;
}

std::string words(const std::vector<std::string> &all) {
    return fmt::format("{}", fmt::join(all, ", "));
}

} // namespace

std::string log_text(const LogHistory &history, const LogView &view) {
    if (history.lines.empty()) return fmt::format("{}: nothing was evicted\n", history.file);
    const LogTotals t = log_totals(history);
    std::string out =
        fmt::format("{}: {} in {}, policy {}{}\n", history.file, counted(t.evictions, "eviction"),
                    counted(t.sequences, "sequence"), words(t.policies),
                    t.allocators.empty() ? "" : ", allocator " + words(t.allocators));
    std::string triggers;
    for (const auto &[name, count] : t.triggers)
        triggers += fmt::format("{}{} {}", triggers.empty() ? "" : ", ", name, count);
    out += fmt::format(
        "triggers: {}\nevicted: {} tokens (counted in the head that lost most), {} keys in all "
        "heads\n"
        "memory of blocks: {} freed at most in one eviction, {} in total (a block that is used "
        "again and freed again counts twice)\n"
        "duration of an eviction: median {:.0f} us, p99 {:.0f} us, longest {:.0f} us; all together "
        "{:.1f} ms\n",
        triggers, t.slots, t.slots_in_all, format_bytes(t.freed_most), format_bytes(t.freed_bytes),
        t.us_median, t.us_p99, t.us_max, t.us_total / 1000);
    if (!t.acts_on.empty()) out += t.acts_on + '\n';
    if (history.is_cut_off)
        out += "the last line of the log is cut off and was ignored, because the run was killed\n";
    size_t told = 0;
    for (const LogEviction &e : log_evictions(history)) {
        const LogLine &line = history.lines[e.begin];
        if (line.pressure.empty() || line.trigger != "pressure" || ++told > 10) continue;
        out += fmt::format("memory was short at {} tokens: {}\n", line.tokens, line.pressure);
    }
    if (told > 10) out += fmt::format("... and {} more times\n", told - 10);
    out += fmt::format("\n{:>7} {:>6} {:>10} {:>10} {:>10} {:>10} {:>12}\n", "layer", "heads",
                       "evictions", "kept min", "kept mean", "kept max", "freed");
    for (const LogTotals::Layer &l : t.layers)
        out += fmt::format("{:>7} {:>6} {:>10} {:>10} {:>10.1f} {:>10} {:>12}\n", l.layer, l.heads,
                           l.lines, l.kept_min, l.kept_sum / static_cast<double>(l.lines),
                           l.kept_max, format_bytes(l.freed_bytes));
    bool ragged = false;
    for (const LogTotals::Layer &l : t.layers)
        ragged = ragged || std::adjacent_find(l.head_kept_sum.begin(), l.head_kept_sum.end(),
                                              std::not_equal_to<>()) != l.head_kept_sum.end();
    if (ragged) {
        out += "\nslots kept in each head, mean over the evictions\n";
        for (const LogTotals::Layer &l : t.layers) {
            out += fmt::format("{:>7}:", l.layer);
            for (const double sum : l.head_kept_sum)
                out += fmt::format(" {:.1f}", sum / static_cast<double>(l.lines));
            out += '\n';
        }
    }
    if (t.sequences > 1)
        out += fmt::format("\nThe drawing shows sequence {}; --sequence N draws another one.\n",
                           view.sequence.value_or(longest_sequence(history)));
    return out + pictures(history, view);
}

nlohmann::ordered_json log_json(const LogHistory &history) {
    using Json = nlohmann::ordered_json;
    const LogTotals t = log_totals(history);
    Json json;
    json["file"] = printable(history.file, 400);
    json["records"] = history.lines.size();
    json["cut_off"] = history.is_cut_off;
    json["evictions"] = t.evictions;
    json["sequences"] = t.sequences;
    json["policies"] = t.policies;
    json["allocators"] = t.allocators;
    json["windows"] = nullptr; // null: no layer keeps only a window
    if (t.windowed_layers > 0)
        json["windows"] = {
            {"layers", t.windowed_layers}, {"of", t.all_layers}, {"tokens", t.window}};
    json["triggers"] = Json::object();
    for (const auto &[name, count] : t.triggers) json["triggers"][name] = count;
    json["evicted_tokens"] = t.slots;
    json["evicted_keys"] = t.slots_in_all;
    json["freed_bytes"] = t.freed_bytes;
    json["freed_most_bytes"] = t.freed_most;
    json["microseconds"] = {
        {"median", t.us_median}, {"p99", t.us_p99}, {"max", t.us_max}, {"total", t.us_total}};
    json["has_positions"] = t.has_positions;
    json["pressure"] = Json::array();
    for (const LogEviction &e : log_evictions(history)) {
        const LogLine &line = history.lines[e.begin];
        if (line.trigger == "pressure")
            json["pressure"].push_back({{"sequence", line.sequence},
                                        {"tokens", line.tokens},
                                        {"share", line.pressure_share},
                                        {"why", line.pressure}});
    }
    json["layers"] = Json::array();
    for (const LogTotals::Layer &l : t.layers) {
        Json layer = {{"layer", l.layer},
                      {"heads", l.heads},
                      {"evictions", l.lines},
                      {"freed_bytes", l.freed_bytes}};
        layer["kept"] = {{"min", l.kept_min},
                         {"mean", l.kept_sum / static_cast<double>(l.lines)},
                         {"max", l.kept_max}};
        layer["kept_per_head"] = Json::array();
        for (const double sum : l.head_kept_sum)
            layer["kept_per_head"].push_back(sum / static_cast<double>(l.lines));
        json["layers"].push_back(std::move(layer));
    }
    return json;
}

} // namespace keel
