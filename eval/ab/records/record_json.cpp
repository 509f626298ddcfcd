#include "eval/ab/records/record_json.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/json_writer.hpp"

#include <cmath>

namespace keel {
namespace {

constexpr int format_version = 1;
constexpr size_t most_arms = 1000, most_contrasts = 100'000, most_facts = 1000;
constexpr size_t most_points = 100'000, most_values = 100'000;
constexpr uint32_t most_layers = 1024, most_heads = 1024, most_shards = 1'000'000,
                   most_batch = 65536;
constexpr uint64_t most_bins = 1'000'000, most_count = uint64_t{1} << 62;
constexpr double largest_number = 1e300;
constexpr JsonLimits limits{ab_longest_line, 8, 1'100'000};

std::string text_or_none(const JsonNode &node, const char *key, size_t longest) {
    const auto value = node.find(key);
    return value ? value->text(longest) : std::string();
}
std::string name_or_none(const JsonNode &node, const char *key) {
    return text_or_none(node, key, ab_longest_name);
}
const std::string &needed_text(const JsonNode &node, const char *key, size_t longest) {
    const std::string &found = node.at(key).text(longest);
    if (found.empty()) node.fail(key, "expected a text, found an empty one");
    return found;
}
const std::string &needed_name(const JsonNode &node, const char *key) {
    return needed_text(node, key, ab_longest_name);
}
uint64_t count(const JsonNode &node, const char *key, uint64_t otherwise = 0, uint64_t low = 0,
               uint64_t high = most_count) {
    const auto value = node.find(key);
    return value ? value->natural(low, high) : otherwise;
}
double number(const JsonNode &node, const char *key, double otherwise, double low, double high) {
    const auto value = node.find(key);
    return value ? value->number(low, high) : otherwise;
}

std::vector<std::pair<std::string, std::string>> read_pairs(const JsonNode &node, const char *key,
                                                            size_t most, size_t longest) {
    std::vector<std::pair<std::string, std::string>> out;
    const auto list = node.find(key);
    for (size_t i = 0; list && i < list->size(most); ++i) {
        const JsonNode pair = list->element(i);
        if (pair.size() != 2) pair.expected("a pair of texts");
        out.emplace_back(pair.element(0).text(ab_longest_name), pair.element(1).text(longest));
    }
    return out;
}

AbStatistics read_statistics(const JsonNode &node) {
    AbStatistics s;
    s.confidence = number(node, "confidence", s.confidence, 0.5, 0.9999);
    s.resamples = count(node, "resamples", s.resamples, 100, 1'000'000);
    s.seed = count(node, "seed", s.seed);
    s.primary = text_or_none(node, "primary", 2 * ab_longest_name + 1);
    s.margin = number(node, "margin", s.margin, 0, 1e6);
    return s;
}

AbPlace read_place(const JsonNode &node) {
    AbPlace p;
    p.arm = needed_name(node, "arm");
    p.budget = needed_name(node, "budget");
    p.protocol = name_or_none(node, "protocol");
    p.task = needed_name(node, "task");
    p.seed = count(node, "seed");
    return p;
}

AbRecord read_item(const JsonNode &node) {
    AbItem i;
    static_cast<AbPlace &>(i) = read_place(node);
    i.metric = needed_name(node, "metric");
    i.document = name_or_none(node, "document");
    i.item = needed_name(node, "item");
    i.value = node.at("value").number(-largest_number, largest_number);
    i.length = static_cast<int64_t>(count(node, "length"));
    i.depth = number(node, "depth", -1, -1, 1);
    i.kv_bytes = count(node, "kv_bytes");
    i.full_kv_bytes = count(node, "full_kv_bytes");
    i.own_full_kv_bytes = count(node, "own_full_kv_bytes");
    i.peak_kv_bytes = count(node, "peak_kv_bytes");
    i.policy_bytes = count(node, "policy_bytes");
    i.kept_slots = number(node, "kept_slots", 0, 0, 1e18);
    i.seen = count(node, "seen");
    i.evictions = count(node, "evictions");
    i.eviction_us = number(node, "eviction_us", 0, 0, 1e18);
    i.answer = text_or_none(node, "answer", ab_longest_text);
    i.expected = text_or_none(node, "expected", ab_longest_text);
    return i;
}

AbRecord read_keep_map(const JsonNode &node) {
    AbKeepMap m;
    static_cast<AbPlace &>(m) = read_place(node);
    m.item = name_or_none(node, "item");
    m.layers = static_cast<uint32_t>(node.at("layers").natural(1, most_layers));
    m.kv_heads = static_cast<uint32_t>(node.at("kv_heads").natural(1, most_heads));
    const uint64_t expected = uint64_t{m.layers} * m.kv_heads * AbKeepMap::bin_count;
    const JsonNode bins = node.at("bins");
    if (bins.size(most_bins) != expected)
        bins.expected(
            fmt::format("{} x {} x {} numbers", m.layers, m.kv_heads, AbKeepMap::bin_count));
    m.bins.reserve(expected);
    for (size_t i = 0; i < expected; ++i)
        m.bins.push_back(static_cast<float>(bins.element(i).number(0, 1)));
    return m;
}

AbRecord read_timeline(const JsonNode &node) {
    AbTimeline t;
    static_cast<AbPlace &>(t) = read_place(node);
    t.item = name_or_none(node, "item");
    const JsonNode points = node.at("points");
    for (size_t i = 0; i < points.size(most_points); ++i) {
        const JsonNode one = points.element(i);
        if (one.size() != 3) one.expected("[tokens, kv_bytes, evicted]");
        std::array<uint64_t, 3> point{};
        for (size_t k = 0; k < 3; ++k) point[k] = one.element(k).natural(0, most_count);
        t.points.push_back(point);
    }
    return t;
}

AbRecord read_curve(const JsonNode &node) {
    AbCurve c;
    static_cast<AbPlace &>(c) = read_place(node);
    c.metric = needed_name(node, "metric");
    c.item = name_or_none(node, "item");
    const JsonNode values = node.at("values");
    for (size_t i = 0; i < values.size(most_values); ++i)
        c.values.push_back(values.element(i).number(-largest_number, largest_number));
    return c;
}

AbRecord read_warning(const JsonNode &node) {
    AbWarning w;
    w.arm = name_or_none(node, "arm");
    w.budget = name_or_none(node, "budget");
    w.protocol = name_or_none(node, "protocol");
    w.task = name_or_none(node, "task");
    w.text = needed_text(node, "text", ab_longest_text);
    return w;
}

// What is written is held to what is read.
const std::string &checked_name(const std::string &name, const char *what, bool needed) {
    if (name.size() > ab_longest_name)
        throw_error(ErrorKind::usage, "a result's {} of {} bytes, at most {} are taken: '{}'", what,
                    name.size(), ab_longest_name, printable(name, 60));
    if (needed && name.empty()) throw_error(ErrorKind::usage, "a result without its {}", what);
    return name;
}

double checked_number(double value, const char *what, const AbPlace &place,
                      double low = -largest_number, double high = largest_number) {
    if (!(value >= low && value <= high))
        throw_error(ErrorKind::runtime,
                    "a result of arm '{}', task '{}': {} is {}, expected {} to {}",
                    printable(place.arm, 60), printable(place.task, 60), what, value, low, high);
    return value;
}

// Cut between characters, not inside one.
std::string cut(const std::string &text, size_t longest) {
    if (text.size() <= longest) return text;
    size_t end = longest;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    return text.substr(0, end);
}

void write_if_given(JsonWriter &json, const char *key, const std::string &name) {
    if (!name.empty()) json.member(key, checked_name(name, key, false));
}

void write_place(JsonWriter &json, const char *kind, const AbPlace &p) {
    json.member("kind", kind);
    json.member("arm", checked_name(p.arm, "arm", true));
    json.member("budget", checked_name(p.budget, "budget", true));
    write_if_given(json, "protocol", p.protocol);
    json.member("task", checked_name(p.task, "task", true));
    json.member("seed", p.seed);
}

void write(JsonWriter &json, const AbItem &i) {
    write_place(json, "item", i);
    json.member("metric", checked_name(i.metric, "metric", true));
    write_if_given(json, "document", i.document);
    json.member("item", checked_name(i.item, "item", true));
    json.member("value", checked_number(i.value, i.metric.c_str(), i));
    if (i.length != 0) json.member("length", std::max<int64_t>(i.length, 0));
    if (i.depth >= 0) json.member("depth", checked_number(i.depth, "the depth", i, 0, 1));
    json.member("kv_bytes", i.kv_bytes);
    json.member("full_kv_bytes", i.full_kv_bytes);
    if (i.own_full_kv_bytes != 0) json.member("own_full_kv_bytes", i.own_full_kv_bytes);
    json.member("peak_kv_bytes", i.peak_kv_bytes);
    if (i.policy_bytes != 0) json.member("policy_bytes", i.policy_bytes);
    json.member("kept_slots", checked_number(i.kept_slots, "kept_slots", i, 0, 1e18));
    json.member("seen", i.seen);
    json.member("evictions", i.evictions);
    if (i.eviction_us != 0)
        json.member("eviction_us", checked_number(i.eviction_us, "eviction_us", i, 0, 1e18));
    // Bytes that are not UTF-8 become U+FFFD, three bytes each: the bound leaves room for them.
    if (!i.answer.empty()) json.member("answer", cut(i.answer, ab_longest_text / 3));
    if (!i.expected.empty()) json.member("expected", cut(i.expected, ab_longest_text / 3));
}

void write(JsonWriter &json, const AbKeepMap &m) {
    write_place(json, "keep_map", m);
    write_if_given(json, "item", m.item);
    if (m.layers == 0 || m.layers > most_layers || m.kv_heads == 0 || m.kv_heads > most_heads ||
        m.bins.size() != uint64_t{m.layers} * m.kv_heads * AbKeepMap::bin_count ||
        m.bins.size() > most_bins)
        throw_error(ErrorKind::usage, "a keep map of {} layers and {} heads with {} numbers",
                    m.layers, m.kv_heads, m.bins.size());
    json.member("layers", m.layers).member("kv_heads", m.kv_heads).key("bins").begin_array();
    for (const float bin : m.bins)
        json.value(std::round(checked_number(bin, "a share kept", m, 0, 1) * 1000) / 1000);
    json.end_array();
}

void write(JsonWriter &json, const AbTimeline &t) {
    write_place(json, "timeline", t);
    write_if_given(json, "item", t.item);
    if (t.points.size() > most_points)
        throw_error(ErrorKind::usage, "a timeline of {} points, at most {}", t.points.size(),
                    most_points);
    json.key("points").begin_array();
    for (const auto &point : t.points)
        json.begin_array().value(point[0]).value(point[1]).value(point[2]).end_array();
    json.end_array();
}

void write(JsonWriter &json, const AbCurve &c) {
    write_place(json, "curve", c);
    json.member("metric", checked_name(c.metric, "metric", true));
    write_if_given(json, "item", c.item);
    if (c.values.size() > most_values)
        throw_error(ErrorKind::usage, "a curve of {} values, at most {}", c.values.size(),
                    most_values);
    json.key("values").begin_array();
    for (const double value : c.values) json.value(checked_number(value, c.metric.c_str(), c));
    json.end_array();
}

void write(JsonWriter &json, const AbWarning &w) {
    json.member("kind", "warning");
    write_if_given(json, "arm", w.arm);
    write_if_given(json, "budget", w.budget);
    write_if_given(json, "protocol", w.protocol);
    write_if_given(json, "task", w.task);
    if (w.text.empty()) throw_error(ErrorKind::usage, "a warning without a text");
    json.member("text", cut(w.text, ab_longest_text / 3));
}

void write_pair(JsonWriter &json, const std::string &name, const std::string &text) {
    json.begin_array().value(name).value(text).end_array();
}

std::string line_of(JsonWriter &json) {
    std::string line = json.take();
    if (line.size() > ab_longest_line)
        throw_error(ErrorKind::usage, "a record of {} bytes, at most {} are written", line.size(),
                    ab_longest_line);
    return line;
}

} // namespace

AbHeader parse_ab_header(std::string_view line, const std::string &file) {
    const JsonDocument document(line, file, limits);
    const JsonNode r = document.object();
    if (!r.find("keel_ab"))
        r.fail("expected the header of an experiment's results ({\"keel_ab\": 1, ...})");
    const uint64_t version = count(r, "keel_ab");
    if (version != format_version)
        r.fail(fmt::format("results of version {}, this program reads version {}", version,
                           format_version));
    AbHeader h;
    h.config_hash = needed_name(r, "config_hash");
    h.experiment_hash = name_or_none(r, "experiment_hash");
    h.version = name_or_none(r, "version");
    h.commit = name_or_none(r, "commit");
    h.libraries = read_pairs(r, "libraries", most_facts, ab_longest_text);
    h.date = name_or_none(r, "date");
    h.model = text_or_none(r, "model", ab_longest_text);
    h.machine = text_or_none(r, "machine", ab_longest_text);
    h.title = text_or_none(r, "title", ab_longest_text);
    h.reference = name_or_none(r, "reference");
    for (auto &[name, text] : read_pairs(r, "arms", most_arms, ab_longest_text))
        h.arms.push_back({std::move(name), std::move(text)});
    h.contrasts = read_pairs(r, "contrasts", most_contrasts, ab_longest_name);
    if (const auto statistics = r.find("statistics")) h.statistics = read_statistics(*statistics);
    const auto sweeps = r.find("sweeps");
    for (size_t i = 0; sweeps && i < sweeps->size(most_arms); ++i)
        h.sweeps.push_back(sweeps->element(i).text(ab_longest_name));
    h.own_prefills = read_pairs(r, "own_prefills", most_contrasts, ab_longest_name);
    h.items = count(r, "items");
    h.batch = static_cast<uint32_t>(count(r, "batch", 1, 1, most_batch));
    h.shards = static_cast<uint32_t>(count(r, "shards", 1, 1, most_shards));
    h.shard = static_cast<uint32_t>(count(r, "shard", 1, 1, h.shards));
    h.facts = read_pairs(r, "facts", most_facts, ab_longest_text);
    return h;
}

AbRecord parse_ab_record(std::string_view line, const std::string &file, uint64_t number) {
    const JsonDocument document(line, file, limits, number);
    const JsonNode r = document.object();
    const std::string &kind = needed_name(r, "kind");
    if (kind == "item") return read_item(r);
    if (kind == "keep_map") return read_keep_map(r);
    if (kind == "timeline") return read_timeline(r);
    if (kind == "curve") return read_curve(r);
    if (kind == "warning") return read_warning(r);
    r.at("kind").expected("item, keep_map, timeline, curve or warning");
}

std::string ab_header_line(const AbHeader &h) {
    JsonWriter json;
    const auto text = [&](const char *key, const std::string &value) {
        json.member(key, cut(value, ab_longest_text / 3));
    };
    json.begin_object().member("keel_ab", format_version);
    json.member("config_hash", checked_name(h.config_hash, "config hash", true));
    json.member("experiment_hash", checked_name(h.experiment_hash, "experiment hash", false));
    json.member("version", checked_name(h.version, "version", false));
    json.member("commit", checked_name(h.commit, "commit", false));
    json.member("date", checked_name(h.date, "date", false));
    if (!h.libraries.empty()) {
        json.key("libraries").begin_array();
        for (const auto &[name, file] : h.libraries)
            write_pair(json, checked_name(name, "library", true), cut(file, ab_longest_text / 3));
        json.end_array();
    }
    text("model", h.model);
    text("machine", h.machine);
    text("title", h.title);
    json.member("reference", checked_name(h.reference, "reference", false));
    json.key("arms").begin_array();
    for (const AbArm &arm : h.arms)
        write_pair(json, checked_name(arm.name, "arm", true), cut(arm.text, ab_longest_text / 3));
    json.end_array().key("contrasts").begin_array();
    for (const auto &[a, b] : h.contrasts)
        write_pair(json, checked_name(a, "arm", true), checked_name(b, "arm", true));
    json.end_array().key("sweeps").begin_array();
    for (const std::string &arm : h.sweeps) json.value(checked_name(arm, "arm", true));
    json.end_array();
    if (!h.own_prefills.empty()) {
        json.key("own_prefills").begin_array();
        for (const auto &[arm, budget] : h.own_prefills)
            write_pair(json, checked_name(arm, "arm", true), checked_name(budget, "budget", true));
        json.end_array();
    }
    const AbStatistics &s = h.statistics;
    json.key("statistics").begin_object().member("confidence", s.confidence);
    json.member("resamples", s.resamples).member("seed", s.seed).member("primary", s.primary);
    json.member("margin", s.margin).end_object().member("items", h.items);
    if (h.batch > 1) json.member("batch", h.batch);
    json.member("shard", h.shard).member("shards", h.shards).key("facts").begin_array();
    for (const auto &[name, fact] : h.facts)
        write_pair(json, checked_name(name, "fact", true), cut(fact, ab_longest_text / 3));
    json.end_array().end_object();
    return line_of(json);
}

std::string ab_record_line(const AbRecord &record) {
    JsonWriter json;
    json.begin_object();
    std::visit([&](const auto &one) { write(json, one); }, record);
    json.end_object();
    return line_of(json);
}

} // namespace keel
