#include "eval/ab/records/record_json.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

using Json = nlohmann::ordered_json;

constexpr int format_version = 1;
constexpr int deepest = 8;
constexpr size_t most_arms = 1000, most_contrasts = 100'000, most_facts = 1000;
constexpr size_t most_points = 100'000, most_values = 100'000;
constexpr uint32_t most_layers = 1024, most_heads = 1024, most_shards = 1'000'000, most_batch = 65536;
constexpr uint64_t most_bins = 1'000'000;

// Reads one object. Every complaint names the place and the key.
class Reader {
  public:
    Reader(const Json &json, std::string place) : json_(json), place_(std::move(place)) {
        if (!json.is_object()) fail("expected a JSON object");
    }

    [[noreturn]] void fail(const std::string &what) const {
        throw_error(ErrorKind::input, "{}: {}", place_, what);
    }

    const Json *find(const char *key) const {
        const auto at = json_.find(key);
        return at == json_.end() || at->is_null() ? nullptr : &*at;
    }

    std::string text(const char *key, size_t longest, bool needed) const {
        const Json *value = find(key);
        if (value == nullptr) {
            if (needed) fail(fmt::format("'{}' is missing", key));
            return {};
        }
        if (!value->is_string()) fail(fmt::format("'{}': expected a string", key));
        const auto &found = value->get_ref<const std::string &>();
        if (found.size() > longest)
            fail(fmt::format("'{}': a text of {} bytes, at most {} are taken", key, found.size(), longest));
        if (needed && found.empty()) fail(fmt::format("'{}' is empty", key));
        return found;
    }
    std::string name(const char *key, bool needed) const { return text(key, ab_longest_name, needed); }

    uint64_t count(const char *key, uint64_t otherwise, uint64_t low = 0,
                   uint64_t high = uint64_t{1} << 62) const {
        const Json *value = find(key);
        if (value == nullptr) return otherwise;
        if (!value->is_number_unsigned() || value->get<uint64_t>() < low || value->get<uint64_t>() > high)
            fail(fmt::format("'{}': expected a whole number from {} to {}, found {}", key, low, high,
                             printable(value->dump(-1, ' ', true, Json::error_handler_t::replace), 40)));
        return value->get<uint64_t>();
    }

    double number(const char *key, double otherwise, double low, double high, bool needed = false) const {
        const Json *value = find(key);
        if (value == nullptr) {
            if (needed) fail(fmt::format("'{}' is missing or null: a number is needed", key));
            return otherwise;
        }
        if (!value->is_number()) fail(fmt::format("'{}': expected a number", key));
        const double found = value->get<double>();
        if (!std::isfinite(found) || found < low || found > high)
            fail(fmt::format("'{}': expected a number from {} to {}, found {}", key, low, high, found));
        return found;
    }

    const Json *list(const char *key, size_t most) const {
        const Json *value = find(key);
        if (value == nullptr) return nullptr;
        if (!value->is_array()) fail(fmt::format("'{}': expected a list", key));
        if (value->size() > most) fail(fmt::format("'{}': {} entries, at most {}", key, value->size(), most));
        return value;
    }

  private:
    const Json &json_;
    std::string place_;
};

constexpr double largest_number = 1e300;

// The DOM of a hostile line may be many times its size: nesting is cut before it is built.
Json parse_line(std::string_view line, const std::string &place) {
    int depth = 0;
    bool in_text = false, escaped = false;
    for (const char c : line) {
        if (in_text) {
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if (c == '"') {
            in_text = true;
        } else if (c == '[' || c == '{') {
            if (++depth > deepest)
                throw_error(ErrorKind::input, "{}: JSON nested more than {} deep", place, deepest);
        } else if (c == ']' || c == '}') {
            --depth;
        }
    }
    Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded())
        throw_error(ErrorKind::input, "{}: expected a line of JSON, found '{}'", place, printable(line, 60));
    return json;
}

std::vector<std::pair<std::string, std::string>> read_pairs(const Reader &r, const char *key, size_t most,
                                                            size_t longest) {
    std::vector<std::pair<std::string, std::string>> out;
    const Json *list = r.list(key, most);
    if (list == nullptr) return out;
    for (const Json &one : *list) {
        if (!one.is_array() || one.size() != 2 || !one[0].is_string() || !one[1].is_string() ||
            one[0].get_ref<const std::string &>().size() > ab_longest_name ||
            one[1].get_ref<const std::string &>().size() > longest)
            r.fail(fmt::format("'{}': expected pairs of texts", key));
        out.emplace_back(one[0].get<std::string>(), one[1].get<std::string>());
    }
    return out;
}

AbStatistics read_statistics(const Json &json, const std::string &place) {
    const Reader r(json, place);
    AbStatistics s;
    s.confidence = r.number("confidence", s.confidence, 0.5, 0.9999);
    s.resamples = r.count("resamples", s.resamples, 100, 1'000'000);
    s.seed = r.count("seed", s.seed);
    s.primary = r.text("primary", 2 * ab_longest_name + 1, false);
    s.margin = r.number("margin", s.margin, 0, 1e6);
    return s;
}

AbPlace read_place(const Reader &r) {
    AbPlace p;
    p.arm = r.name("arm", true);
    p.budget = r.name("budget", true);
    p.protocol = r.name("protocol", false);
    p.task = r.name("task", true);
    p.seed = r.count("seed", 0);
    return p;
}

AbRecord read_item(const Reader &r) {
    AbItem i;
    static_cast<AbPlace &>(i) = read_place(r);
    i.metric = r.name("metric", true);
    i.document = r.name("document", false);
    i.item = r.name("item", true);
    i.value = r.number("value", 0, -largest_number, largest_number, true);
    i.length = static_cast<int64_t>(r.count("length", 0));
    i.depth = r.number("depth", -1, -1, 1);
    i.kv_bytes = r.count("kv_bytes", 0);
    i.full_kv_bytes = r.count("full_kv_bytes", 0);
    i.own_full_kv_bytes = r.count("own_full_kv_bytes", 0);
    i.peak_kv_bytes = r.count("peak_kv_bytes", 0);
    i.policy_bytes = r.count("policy_bytes", 0);
    i.kept_slots = r.number("kept_slots", 0, 0, 1e18);
    i.seen = r.count("seen", 0);
    i.evictions = r.count("evictions", 0);
    i.eviction_us = r.number("eviction_us", 0, 0, 1e18);
    i.answer = r.text("answer", ab_longest_text, false);
    i.expected = r.text("expected", ab_longest_text, false);
    return i;
}

AbRecord read_keep_map(const Reader &r) {
    AbKeepMap m;
    static_cast<AbPlace &>(m) = read_place(r);
    m.item = r.name("item", false);
    m.layers = static_cast<uint32_t>(r.count("layers", 0, 1, most_layers));
    m.kv_heads = static_cast<uint32_t>(r.count("kv_heads", 0, 1, most_heads));
    const uint64_t expected = uint64_t{m.layers} * m.kv_heads * AbKeepMap::bin_count;
    const Json *bins = r.list("bins", most_bins);
    if (bins == nullptr || bins->size() != expected)
        r.fail(fmt::format("'bins': expected {} x {} x {} numbers, found {}", m.layers, m.kv_heads,
                           AbKeepMap::bin_count, bins == nullptr ? 0 : bins->size()));
    m.bins.reserve(expected);
    for (const Json &one : *bins) {
        if (!one.is_number() || !(one.get<double>() >= 0) || one.get<double>() > 1)
            r.fail("'bins': expected shares from 0 to 1");
        m.bins.push_back(one.get<float>());
    }
    return m;
}

AbRecord read_timeline(const Reader &r) {
    AbTimeline t;
    static_cast<AbPlace &>(t) = read_place(r);
    t.item = r.name("item", false);
    const Json *points = r.list("points", most_points);
    if (points == nullptr) r.fail("'points' is missing");
    for (const Json &one : *points) {
        if (!one.is_array() || one.size() != 3)
            r.fail("'points': expected [tokens, kv_bytes, evicted] in whole numbers");
        std::array<uint64_t, 3> point{};
        for (size_t i = 0; i < 3; ++i) {
            if (!one[i].is_number_unsigned() || one[i].get<uint64_t>() > uint64_t{1} << 62)
                r.fail("'points': expected [tokens, kv_bytes, evicted] in whole numbers");
            point[i] = one[i].get<uint64_t>();
        }
        t.points.push_back(point);
    }
    return t;
}

AbRecord read_curve(const Reader &r) {
    AbCurve c;
    static_cast<AbPlace &>(c) = read_place(r);
    c.metric = r.name("metric", true);
    c.item = r.name("item", false);
    const Json *values = r.list("values", most_values);
    if (values == nullptr) r.fail("'values' is missing");
    for (const Json &one : *values) {
        if (!one.is_number() || !(std::abs(one.get<double>()) <= largest_number))
            r.fail("'values': expected finite numbers");
        c.values.push_back(one.get<double>());
    }
    return c;
}

AbRecord read_warning(const Reader &r) {
    AbWarning w;
    w.arm = r.name("arm", false);
    w.budget = r.name("budget", false);
    w.protocol = r.name("protocol", false);
    w.task = r.name("task", false);
    w.text = r.text("text", ab_longest_text, true);
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

double checked_number(double value, const char *what, const AbPlace &place, double low = -largest_number,
                      double high = largest_number) {
    if (!(value >= low && value <= high))
        throw_error(ErrorKind::runtime, "a result of arm '{}', task '{}': {} is {}, expected {} to {}",
                    printable(place.arm, 60), printable(place.task, 60), what, value, low, high);
    return value;
}

// Cut between characters, not inside one.
std::string cut(const std::string &text, size_t longest) {
    if (text.size() <= longest) return text;
    size_t end = longest;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
        --end;
    return text.substr(0, end);
}

Json place_json(const char *kind, const AbPlace &p) {
    Json j;
    j["kind"] = kind;
    j["arm"] = checked_name(p.arm, "arm", true);
    j["budget"] = checked_name(p.budget, "budget", true);
    if (!p.protocol.empty()) j["protocol"] = checked_name(p.protocol, "protocol", false);
    j["task"] = checked_name(p.task, "task", true);
    j["seed"] = p.seed;
    return j;
}

Json to_json(const AbItem &i) {
    Json j = place_json("item", i);
    j["metric"] = checked_name(i.metric, "metric", true);
    if (!i.document.empty()) j["document"] = checked_name(i.document, "document", false);
    j["item"] = checked_name(i.item, "item", true);
    j["value"] = checked_number(i.value, i.metric.c_str(), i);
    if (i.length != 0) j["length"] = static_cast<uint64_t>(std::max<int64_t>(i.length, 0));
    if (i.depth >= 0) j["depth"] = checked_number(i.depth, "the depth", i, 0, 1);
    j["kv_bytes"] = i.kv_bytes;
    j["full_kv_bytes"] = i.full_kv_bytes;
    if (i.own_full_kv_bytes != 0) j["own_full_kv_bytes"] = i.own_full_kv_bytes;
    j["peak_kv_bytes"] = i.peak_kv_bytes;
    if (i.policy_bytes != 0) j["policy_bytes"] = i.policy_bytes;
    j["kept_slots"] = checked_number(i.kept_slots, "kept_slots", i, 0, 1e18);
    j["seen"] = i.seen;
    j["evictions"] = i.evictions;
    if (i.eviction_us != 0) j["eviction_us"] = checked_number(i.eviction_us, "eviction_us", i, 0, 1e18);
    // Bytes that are not UTF-8 become U+FFFD, three bytes each: the bound leaves room for them.
    if (!i.answer.empty()) j["answer"] = cut(i.answer, ab_longest_text / 3);
    if (!i.expected.empty()) j["expected"] = cut(i.expected, ab_longest_text / 3);
    return j;
}

Json to_json(const AbKeepMap &m) {
    Json j = place_json("keep_map", m);
    if (!m.item.empty()) j["item"] = checked_name(m.item, "item", false);
    if (m.layers == 0 || m.layers > most_layers || m.kv_heads == 0 || m.kv_heads > most_heads ||
        m.bins.size() != uint64_t{m.layers} * m.kv_heads * AbKeepMap::bin_count || m.bins.size() > most_bins)
        throw_error(ErrorKind::usage, "a keep map of {} layers and {} heads with {} numbers", m.layers,
                    m.kv_heads, m.bins.size());
    j["layers"] = m.layers;
    j["kv_heads"] = m.kv_heads;
    Json bins = Json::array();
    for (const float bin : m.bins)
        bins.push_back(std::round(checked_number(bin, "a share kept", m, 0, 1) * 1000) / 1000);
    j["bins"] = std::move(bins);
    return j;
}

Json to_json(const AbTimeline &t) {
    Json j = place_json("timeline", t);
    if (!t.item.empty()) j["item"] = checked_name(t.item, "item", false);
    if (t.points.size() > most_points)
        throw_error(ErrorKind::usage, "a timeline of {} points, at most {}", t.points.size(), most_points);
    j["points"] = t.points;
    return j;
}

Json to_json(const AbCurve &c) {
    Json j = place_json("curve", c);
    j["metric"] = checked_name(c.metric, "metric", true);
    if (!c.item.empty()) j["item"] = checked_name(c.item, "item", false);
    if (c.values.size() > most_values)
        throw_error(ErrorKind::usage, "a curve of {} values, at most {}", c.values.size(), most_values);
    for (const double value : c.values)
        checked_number(value, c.metric.c_str(), c);
    j["values"] = c.values;
    return j;
}

Json to_json(const AbWarning &w) {
    Json j;
    j["kind"] = "warning";
    if (!w.arm.empty()) j["arm"] = checked_name(w.arm, "arm", false);
    if (!w.budget.empty()) j["budget"] = checked_name(w.budget, "budget", false);
    if (!w.protocol.empty()) j["protocol"] = checked_name(w.protocol, "protocol", false);
    if (!w.task.empty()) j["task"] = checked_name(w.task, "task", false);
    if (w.text.empty()) throw_error(ErrorKind::usage, "a warning without a text");
    j["text"] = cut(w.text, ab_longest_text / 3);
    return j;
}

std::string line_of(const Json &json) {
    std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (line.size() > ab_longest_line)
        throw_error(ErrorKind::usage, "a record of {} bytes, at most {} are written", line.size(),
                    ab_longest_line);
    return line;
}

} // namespace

AbHeader parse_ab_header(std::string_view line, const std::string &place) {
    const Json json = parse_line(line, place);
    const Reader r(json, place);
    if (r.find("keel_ab") == nullptr)
        r.fail("expected the header of an experiment's results ({\"keel_ab\": 1, ...})");
    const uint64_t version = r.count("keel_ab", 0);
    if (version != format_version)
        r.fail(fmt::format("results of version {}, this program reads version {}", version, format_version));
    AbHeader h;
    h.config_hash = r.name("config_hash", true);
    h.experiment_hash = r.name("experiment_hash", false);
    h.version = r.name("version", false);
    h.commit = r.name("commit", false);
    h.libraries = read_pairs(r, "libraries", most_facts, ab_longest_text);
    h.date = r.name("date", false);
    h.model = r.text("model", ab_longest_text, false);
    h.machine = r.text("machine", ab_longest_text, false);
    h.title = r.text("title", ab_longest_text, false);
    h.reference = r.name("reference", false);
    for (auto &[name, text] : read_pairs(r, "arms", most_arms, ab_longest_text))
        h.arms.push_back({std::move(name), std::move(text)});
    h.contrasts = read_pairs(r, "contrasts", most_contrasts, ab_longest_name);
    if (const Json *statistics = r.find("statistics"))
        h.statistics = read_statistics(*statistics, place + ": statistics");
    if (const Json *sweeps = r.list("sweeps", most_arms)) {
        for (const Json &arm : *sweeps) {
            if (!arm.is_string() || arm.get_ref<const std::string &>().size() > ab_longest_name)
                r.fail("'sweeps': expected names of arms");
            h.sweeps.push_back(arm.get<std::string>());
        }
    }
    h.items = r.count("items", 0);
    h.batch = static_cast<uint32_t>(r.count("batch", 1, 1, most_batch));
    h.shards = static_cast<uint32_t>(r.count("shards", 1, 1, most_shards));
    h.shard = static_cast<uint32_t>(r.count("shard", 1, 1, h.shards));
    h.facts = read_pairs(r, "facts", most_facts, ab_longest_text);
    return h;
}

AbRecord parse_ab_record(std::string_view line, const std::string &file, uint64_t number) {
    const std::string place = fmt::format("{}:{}", file, number);
    const Json json = parse_line(line, place);
    const Reader r(json, place);
    const std::string kind = r.name("kind", true);
    if (kind == "item") return read_item(r);
    if (kind == "keep_map") return read_keep_map(r);
    if (kind == "timeline") return read_timeline(r);
    if (kind == "curve") return read_curve(r);
    if (kind == "warning") return read_warning(r);
    r.fail(fmt::format("unknown kind '{}'; expected item, keep_map, timeline, curve or warning",
                       printable(kind, 40)));
}

std::string ab_header_line(const AbHeader &h) {
    Json j;
    j["keel_ab"] = format_version;
    j["config_hash"] = checked_name(h.config_hash, "config hash", true);
    j["experiment_hash"] = checked_name(h.experiment_hash, "experiment hash", false);
    j["version"] = checked_name(h.version, "version", false);
    j["commit"] = checked_name(h.commit, "commit", false);
    j["date"] = checked_name(h.date, "date", false);
    if (!h.libraries.empty()) {
        Json libraries = Json::array();
        for (const auto &[name, file] : h.libraries)
            libraries.push_back({checked_name(name, "library", true), cut(file, ab_longest_text / 3)});
        j["libraries"] = std::move(libraries);
    }
    j["model"] = cut(h.model, ab_longest_text / 3);
    j["machine"] = cut(h.machine, ab_longest_text / 3);
    j["title"] = cut(h.title, ab_longest_text / 3);
    j["reference"] = checked_name(h.reference, "reference", false);
    Json arms = Json::array(), facts = Json::array(), contrasts = Json::array();
    for (const AbArm &arm : h.arms)
        arms.push_back({checked_name(arm.name, "arm", true), cut(arm.text, ab_longest_text / 3)});
    for (const auto &[a, b] : h.contrasts)
        contrasts.push_back({checked_name(a, "arm", true), checked_name(b, "arm", true)});
    for (const auto &[name, text] : h.facts)
        facts.push_back({checked_name(name, "fact", true), cut(text, ab_longest_text / 3)});
    j["arms"] = std::move(arms);
    j["contrasts"] = std::move(contrasts);
    j["sweeps"] = Json::array();
    for (const std::string &arm : h.sweeps)
        j["sweeps"].push_back(checked_name(arm, "arm", true));
    const AbStatistics &s = h.statistics;
    j["statistics"] = {{"confidence", s.confidence},
                       {"resamples", s.resamples},
                       {"seed", s.seed},
                       {"primary", s.primary},
                       {"margin", s.margin}};
    j["items"] = h.items;
    if (h.batch > 1) j["batch"] = h.batch;
    j["shard"] = h.shard;
    j["shards"] = h.shards;
    j["facts"] = std::move(facts);
    return line_of(j);
}

std::string ab_record_line(const AbRecord &record) {
    return line_of(std::visit([](const auto &one) { return to_json(one); }, record));
}

} // namespace keel
