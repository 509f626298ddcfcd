#include "eval/evictions/history.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace keel {
namespace {

using Json = nlohmann::json;

constexpr uint64_t largest_file = uint64_t{256} << 20;
constexpr size_t longest_line = size_t{16} << 20, most_lines = 2'000'000, longest_text = 400;
constexpr int deepest = 6;
constexpr int64_t most_tokens = int64_t{1} << 31, most_heads = 4096;

// A line that is being read, for messages.
struct Place {
    const std::string &file;
    size_t line;

    template <typename... Args>
    [[noreturn]] void fail(fmt::format_string<Args...> format, Args &&...args) const {
        throw_error(ErrorKind::input, "{}:{}: {}", file, line,
                    fmt::format(format, std::forward<Args>(args)...));
    }
};

const Json *member(const Json &object, const char *key) {
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
}

int64_t whole(const Json &value, const char *key, int64_t least, int64_t most, const Place &at) {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(most));
    if (!fits || value.get<int64_t>() < least || value.get<int64_t>() > most)
        at.fail("expected an integer from {} to {} for \"{}\", found {}", least, most, key,
                printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 60));
    return value.get<int64_t>();
}

int64_t whole(const Json &object, const char *key, int64_t most, const Place &at, bool is_needed = true) {
    const Json *value = member(object, key);
    if (value == nullptr && !is_needed) return 0;
    if (value == nullptr) at.fail("expected \"{}\" in an eviction's record, found none", key);
    return whole(*value, key, 0, most, at);
}

double number(const Json &object, const char *key, const Place &at) {
    const Json *value = member(object, key);
    if (value == nullptr) return 0;
    if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() < 0)
        at.fail("expected a number of 0 or more for \"{}\"", key);
    return value->get<double>();
}

std::string text(const Json &object, const char *key, const Place &at) {
    const Json *value = member(object, key);
    if (value == nullptr) return {};
    if (!value->is_string()) at.fail("expected a text for \"{}\"", key);
    return printable(value->get_ref<const std::string &>(), longest_text);
}

void read_heads(const Json &json, LogLine &line, const Place &at) {
    if (const Json *kept = member(json, "kept")) {
        if (!kept->is_array() || kept->size() != line.heads)
            at.fail("expected {} numbers for \"kept\", one for each head", line.heads);
        for (const Json &count : *kept)
            line.kept.push_back(whole(count, "kept", 0, most_tokens, at));
    }
    const Json *tokens = member(json, "kept_tokens");
    if (tokens == nullptr) return;
    if (!tokens->is_array() || tokens->size() != line.heads)
        at.fail("expected {} lists for \"kept_tokens\", one for each head", line.heads);
    for (const Json &head : *tokens) {
        if (!head.is_array()) at.fail("expected lists of [from, to] for \"kept_tokens\"");
        std::vector<TokenRun> runs;
        int64_t last = 0;
        for (const Json &run : head) {
            if (!run.is_array() || run.size() != 2) at.fail("expected [from, to] in \"kept_tokens\"");
            const int64_t from = whole(run[0], "kept_tokens", last, most_tokens - 2, at);
            last = whole(run[1], "kept_tokens", from + 1, most_tokens - 1, at);
            runs.push_back({static_cast<int32_t>(from), static_cast<int32_t>(last)});
        }
        line.runs.push_back(std::move(runs));
    }
}

LogLine read_line(std::string_view content, const Place &at) {
    Json json;
    try {
        json = Json::parse(content.begin(), content.end(), [&](int depth, Json::parse_event_t, Json &) {
            if (depth > deepest)
                at.fail("expected an eviction's record, found JSON nested more than {} deep", deepest);
            return true;
        });
    } catch (const Json::exception &) {
        at.fail("expected an eviction's record (a JSON object), found '{}'", printable(content, 60));
    }
    if (!json.is_object())
        at.fail("expected an eviction's record (a JSON object), found '{}'", printable(content, 60));
    LogLine line;
    line.sequence = static_cast<uint64_t>(whole(json, "sequence", int64_t{1} << 53, at));
    line.tokens = whole(json, "tokens", most_tokens, at);
    line.time = text(json, "time", at);
    line.seconds = number(json, "seconds", at);
    line.trigger = text(json, "trigger", at);
    line.policy = text(json, "policy", at);
    line.layer = static_cast<uint32_t>(whole(json, "layer", most_heads, at));
    line.heads = static_cast<uint32_t>(whole(json, "heads", most_heads, at));
    if (line.heads == 0) at.fail("expected one head or more, found \"heads\" 0");
    line.budget = whole(json, "budget", most_tokens, at, false);
    line.held = whole(json, "held", most_tokens, at);
    line.kept_min = whole(json, "kept_min", line.held, at);
    line.kept_max = whole(json, "kept_max", line.held, at);
    if (member(json, "evicted") != nullptr) {
        line.evicted = whole(json, "evicted", line.held * line.heads, at);
        line.evicted_max = whole(json, "evicted_max", line.held, at);
    } else { // logs of older versions: right where the heads of a layer are of one length
        line.evicted_max = line.held - line.kept_min;
        line.evicted = line.evicted_max * line.heads;
    }
    line.freed_bytes = static_cast<uint64_t>(whole(json, "freed_bytes", int64_t{1} << 53, at));
    line.moved_keys = whole(json, "moved_keys", int64_t{1} << 53, at, false);
    line.microseconds = number(json, "microseconds", at);
    if (const Json *allocator = member(json, "allocator"); allocator != nullptr && allocator->is_object())
        line.allocator = text(*allocator, "plugin", at);
    if (const Json *pressure = member(json, "pressure"); pressure != nullptr && pressure->is_object()) {
        line.pressure = text(*pressure, "why", at);
        line.pressure_share = number(*pressure, "share", at);
    }
    if (const Json *scores = member(json, "scores"); scores != nullptr && scores->is_object()) {
        std::array<double, 5> values{};
        constexpr std::array<const char *, 5> keys = {"min", "p25", "median", "p75", "max"};
        bool all = true;
        for (size_t i = 0; i < keys.size(); ++i) {
            const Json *value = member(*scores, keys[i]);
            const bool is_number = value != nullptr && value->is_number();
            all = all && is_number;
            if (is_number) values[i] = value->get<double>();
        }
        if (all) line.scores = values; // infinities are null
    }
    read_heads(json, line, at);
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
        const Place at{name, number};
        const size_t end = content.find('\n');
        const bool is_whole = end != std::string_view::npos;
        const std::string_view line = content.substr(0, end);
        content.remove_prefix(is_whole ? end + 1 : content.size());
        if (line.empty() || line == "\r") continue;
        if (line.size() > longest_line)
            at.fail("expected an eviction's record, found a line of {} bytes", line.size());
        if (history.lines.size() >= most_lines)
            at.fail("expected at most {} records, found more", most_lines);
        if (is_whole) {
            history.lines.push_back(read_line(line, at));
            continue;
        }
        try { // a run that was killed while it wrote
            history.lines.push_back(read_line(line, at));
        } catch (const Error &) {
            if (history.lines.empty()) throw;
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
    for (const LogLine &line : history.lines)
        ++counts[line.sequence];
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
    for (auto &[index, layer] : layers)
        out.push_back(std::move(layer));
    return out;
}

KeepPicture keep_picture(const LogHistory &history, const LogLayer &layer, std::optional<uint32_t> head,
                         size_t columns, size_t bins) {
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
                // Positions behind the newest token cannot be; a log may say so all the same.
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
            row[b] =
                come <= 0
                    ? -1.0f
                    : static_cast<float>(std::min(1.0, kept[b] / (come * static_cast<double>(end - first))));
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
        for (size_t i = e.begin; i < e.end; ++i) {
            const LogLine &line = history.lines[i];
            most = std::max(most, line.evicted_max);
            totals.slots_in_all += static_cast<uint64_t>(line.evicted);
            sum += line.microseconds;
            totals.freed_bytes += line.freed_bytes;
            policies.insert(line.policy);
            if (!line.allocator.empty()) allocators.insert(line.allocator);
            sequences.insert(line.sequence);
            totals.has_positions = totals.has_positions || !line.runs.empty();
            LogTotals::Layer &layer = layers[line.layer];
            layer.kept_min = layer.lines == 0 ? line.kept_min : std::min(layer.kept_min, line.kept_min);
            layer.kept_max = std::max(layer.kept_max, line.kept_max);
            double mean = static_cast<double>(line.kept_min + line.kept_max) / 2;
            if (!line.kept.empty()) {
                mean = 0;
                layer.head_kept_sum.resize(std::max<size_t>(layer.head_kept_sum.size(), line.kept.size()));
                for (size_t h = 0; h < line.kept.size(); ++h) {
                    mean += static_cast<double>(line.kept[h]) / static_cast<double>(line.kept.size());
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
    for (auto &[index, layer] : layers)
        totals.layers.push_back(std::move(layer));
    return totals;
}

} // namespace keel
