#include "eval/ab/records/record_json.hpp"

#include "eval/ab/records/json_fields.hpp"
#include "eval/page/page.hpp"

#include <cmath>

namespace keel::ab {
namespace {

using namespace fields;

bool are_shades(const std::string &text) {
    return text.find_first_not_of(page_shades) == std::string::npos;
}

Place read_place(const JsonNode &node) {
    Place p;
    p.arm = needed_name(node, "arm");
    p.budget = needed_name(node, "budget");
    p.protocol = name_or_none(node, "protocol");
    p.task = needed_name(node, "task");
    p.seed = count(node, "seed");
    return p;
}

// A byte that is not UTF-8 is written as U+FFFD, which has three bytes.
constexpr size_t longest_written = 3;

Record read_item(const JsonNode &node) {
    Item i;
    static_cast<Place &>(i) = read_place(node);
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
    i.answer = text_or_none(node, "answer", longest_text);
    i.expected = text_or_none(node, "expected", longest_text);
    return i;
}

Record read_keep_map(const JsonNode &node) {
    KeepMap m;
    static_cast<Place &>(m) = read_place(node);
    m.item = name_or_none(node, "item");
    m.layers = static_cast<uint32_t>(node.at("layers").natural(1, most_layers));
    m.kv_heads = static_cast<uint32_t>(node.at("kv_heads").natural(1, most_heads));
    const uint64_t expected = uint64_t{m.layers} * m.kv_heads * KeepMap::bin_count;
    const JsonNode bins = node.at("bins");
    if (bins.size(most_bins) != expected)
        bins.expected(
            fmt::format("{} x {} x {} numbers", m.layers, m.kv_heads, KeepMap::bin_count));
    m.bins.reserve(expected);
    for (size_t i = 0; i < expected; ++i)
        m.bins.push_back(static_cast<float>(bins.element(i).number(0, 1)));
    m.kept = text_or_none(node, "kept", most_prompt_tokens);
    if (!are_shades(m.kept)) node.at("kept").expected("characters of 0-9, A-Z, a-z, - and _");
    return m;
}

Record read_prompt(const JsonNode &node) {
    Prompt p;
    static_cast<Place &>(p) = read_place(node);
    p.item = name_or_none(node, "item");
    const JsonNode tokens = node.at("tokens");
    size_t left = longest_written * most_prompt_text;
    for (size_t i = 0; i < tokens.size(most_prompt_tokens); ++i) {
        p.tokens.push_back(tokens.element(i).text(left));
        left -= p.tokens.back().size();
    }
    return p;
}

Record read_timeline(const JsonNode &node) {
    Timeline t;
    static_cast<Place &>(t) = read_place(node);
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

Record read_curve(const JsonNode &node) {
    Curve c;
    static_cast<Place &>(c) = read_place(node);
    c.metric = needed_name(node, "metric");
    c.item = name_or_none(node, "item");
    const JsonNode values = node.at("values");
    for (size_t i = 0; i < values.size(most_values); ++i)
        c.values.push_back(values.element(i).number(-largest_number, largest_number));
    return c;
}

Record read_warning(const JsonNode &node) {
    Warning w;
    w.arm = name_or_none(node, "arm");
    w.budget = name_or_none(node, "budget");
    w.protocol = name_or_none(node, "protocol");
    w.task = name_or_none(node, "task");
    w.text = needed_text(node, "text", longest_text);
    return w;
}

// Returns the number if the number is in range. The reader of records checks the same limits.
double checked_number(double value, const char *what, const Place &place,
                      double low = -largest_number, double high = largest_number) {
    if (!(value >= low && value <= high))
        throw_error(ErrorKind::runtime,
                    "a result of arm '{}', task '{}': {} is {}; expected {} to {}",
                    printable(place.arm, 60), printable(place.task, 60), what, value, low, high);
    return value;
}

void write_if_given(JsonWriter &json, const char *key, const std::string &name) {
    if (!name.empty()) json.member(key, checked_name(name, key, false));
}

void write_place(JsonWriter &json, const char *kind, const Place &p) {
    json.member("kind", kind);
    json.member("arm", checked_name(p.arm, "arm", true));
    json.member("budget", checked_name(p.budget, "budget", true));
    write_if_given(json, "protocol", p.protocol);
    json.member("task", checked_name(p.task, "task", true));
    json.member("seed", p.seed);
}

void write(JsonWriter &json, const Item &i) {
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
    // A byte that is not valid UTF-8 becomes U+FFFD, which has three bytes. So at most a third of
    // the limit is written.
    if (!i.answer.empty()) json.member("answer", cut(i.answer, longest_text / 3));
    if (!i.expected.empty()) json.member("expected", cut(i.expected, longest_text / 3));
}

void write(JsonWriter &json, const KeepMap &m) {
    write_place(json, "keep_map", m);
    write_if_given(json, "item", m.item);
    if (m.layers == 0 || m.layers > most_layers || m.kv_heads == 0 || m.kv_heads > most_heads ||
        m.bins.size() != uint64_t{m.layers} * m.kv_heads * KeepMap::bin_count ||
        m.bins.size() > most_bins)
        throw_error(
            ErrorKind::usage,
            "a keep map has {} layers, {} heads and {} numbers; expected 64 numbers for each head",
            m.layers, m.kv_heads, m.bins.size());
    json.member("layers", m.layers).member("kv_heads", m.kv_heads).key("bins").begin_array();
    for (const float bin : m.bins)
        json.value(std::round(checked_number(bin, "a share kept", m, 0, 1) * 1000) / 1000);
    json.end_array();
    if (m.kept.size() > most_prompt_tokens || !are_shades(m.kept))
        throw_error(ErrorKind::usage, "a keep map with the shares of {} tokens, at most {}",
                    m.kept.size(), most_prompt_tokens);
    if (!m.kept.empty()) json.member("kept", m.kept);
}

void write(JsonWriter &json, const Prompt &p) {
    write_place(json, "prompt", p);
    write_if_given(json, "item", p.item);
    json.key("tokens").begin_array();
    size_t left = most_prompt_text;
    for (size_t i = 0; i < std::min(p.tokens.size(), most_prompt_tokens); ++i) {
        if (p.tokens[i].size() > left) break;
        left -= p.tokens[i].size();
        json.value(p.tokens[i]);
    }
    json.end_array();
}

void write(JsonWriter &json, const Timeline &t) {
    write_place(json, "timeline", t);
    write_if_given(json, "item", t.item);
    if (t.points.size() > most_points)
        throw_error(ErrorKind::usage, "a timeline has {} points; expected at most {}",
                    t.points.size(), most_points);
    json.key("points").begin_array();
    for (const auto &point : t.points)
        json.begin_array().value(point[0]).value(point[1]).value(point[2]).end_array();
    json.end_array();
}

void write(JsonWriter &json, const Curve &c) {
    write_place(json, "curve", c);
    json.member("metric", checked_name(c.metric, "metric", true));
    write_if_given(json, "item", c.item);
    if (c.values.size() > most_values)
        throw_error(ErrorKind::usage, "a curve has {} values; expected at most {}", c.values.size(),
                    most_values);
    json.key("values").begin_array();
    for (const double value : c.values) json.value(checked_number(value, c.metric.c_str(), c));
    json.end_array();
}

void write(JsonWriter &json, const Warning &w) {
    json.member("kind", "warning");
    write_if_given(json, "arm", w.arm);
    write_if_given(json, "budget", w.budget);
    write_if_given(json, "protocol", w.protocol);
    write_if_given(json, "task", w.task);
    if (w.text.empty()) throw_error(ErrorKind::usage, "a warning has no text; expected one");
    json.member("text", cut(w.text, longest_text / 3));
}

} // namespace

Record parse_record(std::string_view line, const std::string &file, uint64_t number) {
    const JsonDocument document(line, file, limits, number);
    const JsonNode r = document.object();
    const std::string &kind = needed_name(r, "kind");
    if (kind == "item") return read_item(r);
    if (kind == "keep_map") return read_keep_map(r);
    if (kind == "prompt") return read_prompt(r);
    if (kind == "timeline") return read_timeline(r);
    if (kind == "curve") return read_curve(r);
    if (kind == "warning") return read_warning(r);
    r.at("kind").expected("item, keep_map, prompt, timeline, curve or warning");
}

std::string record_line(const Record &record) {
    JsonWriter json;
    json.begin_object();
    std::visit([&](const auto &one) { write(json, one); }, record);
    json.end_object();
    return line_of(json);
}

} // namespace keel::ab
