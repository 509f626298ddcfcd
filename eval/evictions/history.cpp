#include "eval/evictions/history.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace keel {
namespace {

constexpr uint64_t largest_file = uint64_t{256} << 20;
constexpr size_t longest_line = size_t{16} << 20, most_lines = 2'000'000, longest_text = 400;
constexpr int64_t most_tokens = int64_t{1} << 31, most_heads = 4096;

constexpr JsonLimits limits{longest_line, 6, 4'000'000};

int64_t whole(const JsonNode &record, const char *key, int64_t most) {
    return record.at(key).integer(0, most);
}

int64_t whole_or_0(const JsonNode &record, const char *key, int64_t most) {
    const auto value = record.find(key);
    return value ? value->integer(0, most) : 0;
}

double number_or_0(const JsonNode &record, const char *key) {
    const auto value = record.find(key);
    return value ? value->number(0, std::numeric_limits<double>::max()) : 0;
}

std::string text_or_none(const JsonNode &record, const char *key) {
    const auto value = record.find(key);
    return value ? printable(value->text(), longest_text) : std::string();
}

void read_heads(const JsonNode &record, LogLine &line) {
    if (const auto kept = record.find("kept")) {
        if (kept->size() != line.heads)
            kept->expected(fmt::format("{} numbers, one for each head", line.heads));
        for (size_t head = 0; head < line.heads; ++head)
            line.kept.push_back(kept->element(head).integer(0, most_tokens));
    }
    const auto tokens = record.find("kept_tokens");
    if (!tokens) return;
    if (tokens->size() != line.heads)
        tokens->expected(fmt::format("{} lists, one for each head", line.heads));
    for (size_t head = 0; head < line.heads; ++head) {
        const JsonNode list = tokens->element(head);
        std::vector<TokenRun> runs;
        int64_t last = 0;
        for (size_t i = 0; i < list.size(); ++i) {
            const JsonNode run = list.element(i);
            if (run.size() != 2) run.expected("[from, to]");
            const int64_t from = run.element(0).integer(last, most_tokens - 2);
            last = run.element(1).integer(from + 1, most_tokens - 1);
            runs.push_back({static_cast<int32_t>(from), static_cast<int32_t>(last)});
        }
        line.runs.push_back(std::move(runs));
    }
}

// Returns the minimum, the quartiles and the maximum of the scores. Returns nullopt if one of these
// five numbers is null. The log has null for an infinite score.
std::optional<std::array<double, 5>> read_scores(const JsonNode &scores) {
    std::array<double, 5> values{};
    constexpr std::array<const char *, 5> keys = {"min", "p25", "median", "p75", "max"};
    for (size_t i = 0; i < keys.size(); ++i) {
        const auto value = scores.find(keys[i]);
        if (!value) return std::nullopt;
        values[i] = value->number();
    }
    return values;
}

LogLine read_line(std::string_view content, const std::string &file, size_t number) {
    const JsonDocument document(content, file, limits, number);
    const JsonNode record = document.object();
    LogLine line;
    line.sequence = static_cast<uint64_t>(whole(record, "sequence", int64_t{1} << 53));
    line.tokens = whole(record, "tokens", most_tokens);
    line.time = text_or_none(record, "time");
    line.seconds = number_or_0(record, "seconds");
    line.trigger = text_or_none(record, "trigger");
    line.policy = text_or_none(record, "policy");
    line.layer = static_cast<uint32_t>(whole(record, "layer", most_heads));
    line.heads = static_cast<uint32_t>(record.at("heads").integer(1, most_heads));
    line.budget = whole_or_0(record, "budget", most_tokens);
    line.held = whole(record, "held", most_tokens);
    line.kept_min = whole(record, "kept_min", line.held);
    line.kept_max = whole(record, "kept_max", line.held);
    if (record.find("evicted")) {
        line.evicted = whole(record, "evicted", line.held * line.heads);
        line.evicted_max = whole(record, "evicted_max", line.held);
        // This branch is for logs of older versions. The numbers are correct if all heads of the
        // layer have the same length.
    } else {
        line.evicted_max = line.held - line.kept_min;
        line.evicted = line.evicted_max * line.heads;
    }
    line.freed_bytes = static_cast<uint64_t>(whole(record, "freed_bytes", int64_t{1} << 53));
    line.moved_keys = whole_or_0(record, "moved_keys", int64_t{1} << 53);
    line.microseconds = number_or_0(record, "microseconds");
    if (const auto allocator = record.find("allocator"))
        line.allocator = text_or_none(*allocator, "plugin");
    if (const auto pressure = record.find("pressure")) {
        line.pressure = text_or_none(*pressure, "why");
        line.pressure_share = number_or_0(*pressure, "share");
    }
    if (const auto windows = record.find("windows")) {
        line.all_layers = static_cast<uint32_t>(windows->at("of").integer(2, most_heads));
        line.windowed_layers =
            static_cast<uint32_t>(windows->at("layers").integer(1, line.all_layers - 1));
        line.window = windows->at("tokens").integer(1, most_tokens);
    }
    if (const auto scores = record.find("scores")) line.scores = read_scores(*scores);
    read_heads(record, line);
    return line;
}

double quantile(const std::vector<double> &sorted, double q) {
    if (sorted.empty()) return 0;
    return sorted[static_cast<size_t>(std::ceil(q * static_cast<double>(sorted.size() - 1)))];
}

} // namespace

LogHistory parse_eviction_log(std::string_view content, const std::string &name) {
    LogHistory history;
    history.file = name;
    for (size_t number = 1; !content.empty(); ++number) {
        const size_t end = content.find('\n');
        const bool is_whole = end != std::string_view::npos;
        const std::string_view line = content.substr(0, end);
        content.remove_prefix(is_whole ? end + 1 : content.size());
        if (line.empty() || line == "\r") continue;
        if (history.lines.size() >= most_lines)
            throw_error(ErrorKind::input, "{}:{}: expected at most {} records, found more", name,
                        number, most_lines);
        try {
            history.lines.push_back(read_line(line, name, number));
        } catch (const Error &) {
            // An incomplete last line is ignored, because a killed run can leave an incomplete
            // line.
            if (is_whole || history.lines.empty()) throw;
            history.is_cut_off = true;
        }
    }
    return history;
}

LogHistory read_eviction_log(const std::filesystem::path &path) {
    return parse_eviction_log(read_text_file(path, largest_file), path.string());
}

uint64_t longest_sequence(const LogHistory &history) {
    std::map<uint64_t, size_t> counts;
    for (const LogLine &line : history.lines) ++counts[line.sequence];
    uint64_t longest = 0;
    size_t most = 0;
    for (const auto &[sequence, count] : counts) {
        if (count > most) longest = sequence;
        most = std::max(most, count);
    }
    return longest;
}

std::vector<LogLayer> log_layers(const LogHistory &history, std::optional<uint64_t> sequence) {
    const uint64_t wanted = sequence.value_or(longest_sequence(history));
    std::map<uint32_t, LogLayer> layers;
    for (size_t i = 0; i < history.lines.size(); ++i) {
        const LogLine &line = history.lines[i];
        if (line.sequence != wanted) continue;
        LogLayer &layer = layers[line.layer];
        layer.layer = line.layer;
        layer.heads = std::max(layer.heads, line.heads);
        layer.lines.push_back(i);
    }
    std::vector<LogLayer> out;
    for (auto &[index, layer] : layers) out.push_back(std::move(layer));
    return out;
}

KeepPicture keep_picture(const LogHistory &history, const LogLayer &layer,
                         std::optional<uint32_t> head, size_t columns, size_t bins) {
    KeepPicture picture;
    picture.layer = layer.layer;
    picture.head = head;
    std::vector<size_t> drawn;
    for (const size_t i : layer.lines) {
        const LogLine &line = history.lines[i];
        picture.tokens = std::max(picture.tokens, line.tokens);
        if (!line.runs.empty() && (!head || *head < line.runs.size())) drawn.push_back(i);
    }
    if (drawn.empty() || columns == 0 || bins == 0 || picture.tokens == 0) return picture;
    const size_t shown = std::min(columns, drawn.size());
    picture.bins = std::min<size_t>(bins, static_cast<size_t>(picture.tokens));
    picture.share.assign(shown * picture.bins, 0.0f);
    const double width = static_cast<double>(picture.tokens) / static_cast<double>(picture.bins);
    for (size_t c = 0; c < shown; ++c) {
        const LogLine &line = history.lines[drawn[(c + 1) * drawn.size() / shown - 1]];
        picture.at.push_back(line.tokens);
        picture.why.push_back(line.trigger);
        float *row = picture.share.data() + c * picture.bins;
        std::vector<double> kept(picture.bins, 0.0);
        const size_t first = head.value_or(0), end = head ? first + 1 : line.runs.size();
        for (size_t h = first; h < end; ++h) {
            for (const TokenRun &run : line.runs[h]) {
                // A damaged log can contain positions that are not below the number of tokens.
                const double from = run.from,
                             to = std::min<double>(run.to, static_cast<double>(picture.tokens));
                for (auto b = static_cast<size_t>(from / width); b < picture.bins; ++b) {
                    const double begin = width * static_cast<double>(b), stop = begin + width;
                    if (begin >= to) break;
                    kept[b] += std::max(0.0, std::min(stop, to) - std::max(begin, from));
                }
            }
        }
        for (size_t b = 0; b < picture.bins; ++b) {
            const double begin = width * static_cast<double>(b);
            const double come = std::min(width, static_cast<double>(line.tokens) - begin);
            row[b] = come <= 0 ? -1.0f
                               : static_cast<float>(std::min(
                                     1.0, kept[b] / (come * static_cast<double>(end - first))));
        }
    }
    return picture;
}

std::vector<LogEviction> log_evictions(const LogHistory &history) {
    std::vector<LogEviction> out;
    for (size_t i = 0; i < history.lines.size(); ++i) {
        const LogLine &line = history.lines[i];
        if (i > 0) {
            const LogLine &last = history.lines[i - 1];
            if (last.sequence == line.sequence && last.tokens == line.tokens &&
                last.trigger == line.trigger && last.layer < line.layer) {
                out.back().end = i + 1;
                continue;
            }
        }
        out.push_back({i, i + 1});
    }
    return out;
}

LogTotals log_totals(const LogHistory &history) {
    LogTotals totals;
    std::map<std::string, uint64_t> triggers;
    std::set<std::string> policies, allocators;
    std::set<uint64_t> sequences;
    std::map<uint32_t, LogTotals::Layer> layers;
    std::vector<double> us;
    for (const LogEviction &e : log_evictions(history)) {
        int64_t most = 0;
        double sum = 0;
        uint64_t freed = 0;
        for (size_t i = e.begin; i < e.end; ++i) {
            const LogLine &line = history.lines[i];
            most = std::max(most, line.evicted_max);
            totals.slots_in_all += static_cast<uint64_t>(line.evicted);
            sum += line.microseconds;
            freed += line.freed_bytes;
            policies.insert(line.policy);
            if (!line.allocator.empty()) allocators.insert(line.allocator);
            sequences.insert(line.sequence);
            if (line.windowed_layers > 0) {
                totals.windowed_layers = line.windowed_layers;
                totals.all_layers = line.all_layers;
                totals.window = line.window;
            }
            totals.has_positions = totals.has_positions || !line.runs.empty();
            LogTotals::Layer &layer = layers[line.layer];
            layer.kept_min =
                layer.lines == 0 ? line.kept_min : std::min(layer.kept_min, line.kept_min);
            layer.kept_max = std::max(layer.kept_max, line.kept_max);
            double mean = static_cast<double>(line.kept_min + line.kept_max) / 2;
            if (!line.kept.empty()) {
                mean = 0;
                layer.head_kept_sum.resize(
                    std::max<size_t>(layer.head_kept_sum.size(), line.kept.size()));
                for (size_t h = 0; h < line.kept.size(); ++h) {
                    mean +=
                        static_cast<double>(line.kept[h]) / static_cast<double>(line.kept.size());
                    layer.head_kept_sum[h] += static_cast<double>(line.kept[h]);
                }
            }
            layer.kept_sum += mean;
            layer.layer = line.layer;
            layer.heads = std::max(layer.heads, line.heads);
            layer.freed_bytes += line.freed_bytes;
            ++layer.lines;
        }
        ++triggers[history.lines[e.begin].trigger];
        totals.freed_bytes += freed;
        totals.freed_most = std::max(totals.freed_most, freed);
        ++totals.evictions;
        totals.slots += static_cast<uint64_t>(most);
        us.push_back(sum);
        totals.us_total += sum;
    }
    std::sort(us.begin(), us.end());
    totals.us_median = quantile(us, 0.5);
    totals.us_p99 = quantile(us, 0.99);
    totals.us_max = us.empty() ? 0 : us.back();
    totals.triggers.assign(triggers.begin(), triggers.end());
    std::stable_sort(totals.triggers.begin(), totals.triggers.end(),
                     [](const auto &a, const auto &b) { return a.second > b.second; });
    totals.policies.assign(policies.begin(), policies.end());
    totals.allocators.assign(allocators.begin(), allocators.end());
    totals.sequences = sequences.size();
    if (totals.windowed_layers > 0)
        totals.acts_on = windows_text(totals.windowed_layers, totals.all_layers, totals.window);
    for (auto &[index, layer] : layers) totals.layers.push_back(std::move(layer));
    return totals;
}

} // namespace keel
