#include "eval/ab/records/json_fields.hpp"
#include "eval/ab/records/record_json.hpp"

namespace keel::ab {
namespace {

using namespace fields;

constexpr int format_version = 1;

// Each contrast is [a, b], or [a, b, "task/metric"].
std::vector<PlannedContrast> read_contrasts(const JsonNode &node) {
    std::vector<PlannedContrast> out;
    const auto list = node.find("contrasts");
    for (size_t i = 0; list && i < list->size(most_contrasts); ++i) {
        const JsonNode one = list->element(i);
        if (one.size() != 2 && one.size() != 3)
            one.expected("[ARM, ARM] or [ARM, ARM, TASK/METRIC]");
        out.push_back({one.element(0).text(longest_name), one.element(1).text(longest_name),
                       one.size() == 3 ? one.element(2).text(2 * longest_name + 1) : ""});
    }
    return out;
}

double read_margin(const std::string &metric, const JsonNode &value) {
    const double margin = value.number(0, 1e6);
    const Metric meaning = metric_named(metric);
    if (!is_margin(margin, meaning))
        value.expected(fmt::format("a margin below 1 (which is 100 {})", margin_unit(meaning)));
    return margin;
}

Statistics read_statistics(const JsonNode &node) {
    Statistics s;
    s.confidence = number(node, "confidence", s.confidence, 0.5, 0.9999);
    s.resamples = count(node, "resamples", s.resamples, 100, 1'000'000);
    s.seed = count(node, "seed", s.seed);
    s.primary = text_or_none(node, "primary", 2 * longest_name + 1);
    if (const auto looks = node.find("looks")) {
        if (looks->text(longest_name) != looks_name(Looks::obrien_fleming))
            looks->expected(looks_name(Looks::obrien_fleming));
        s.looks = Looks::obrien_fleming;
    }
    if (const auto margins = node.find("margins"))
        for (const auto &[metric, value] : margins->members())
            s.margins[std::string(metric)] = read_margin(std::string(metric), value);
    return s;
}

} // namespace

Header parse_header(std::string_view line, const std::string &file) {
    const JsonDocument document(line, file, limits);
    const JsonNode r = document.object();
    if (!r.find("keel_ab"))
        r.fail("expected the header of an experiment's results, {\"keel_ab\": 1, ...}");
    const uint64_t version = count(r, "keel_ab");
    if (version != format_version)
        r.fail(
            fmt::format("keel_ab: these results have version {}, but this program reads version {}",
                        version, format_version));
    Header h;
    h.config_hash = needed_name(r, "config_hash");
    h.experiment_hash = name_or_none(r, "experiment_hash");
    h.version = name_or_none(r, "version");
    h.commit = name_or_none(r, "commit");
    h.libraries = read_pairs(r, "libraries", most_facts, longest_text);
    h.date = name_or_none(r, "date");
    h.model = text_or_none(r, "model", longest_text);
    h.machine = text_or_none(r, "machine", longest_text);
    h.title = text_or_none(r, "title", longest_text);
    h.reference = name_or_none(r, "reference");
    for (auto &[name, text] : read_pairs(r, "arms", most_arms, longest_text))
        h.arms.push_back({std::move(name), std::move(text)});
    h.contrasts = read_contrasts(r);
    if (const auto statistics = r.find("statistics")) {
        h.statistics = read_statistics(*statistics);
        if (statistics->find("margin") && !statistics->find("margins"))
            h.old_margin = number(*statistics, "margin", 0, 0, 1e6);
    }
    const auto sweeps = r.find("sweeps");
    for (size_t i = 0; sweeps && i < sweeps->size(most_arms); ++i)
        h.sweeps.push_back(sweeps->element(i).text(longest_name));
    h.own_prefills = read_pairs(r, "own_prefills", most_contrasts, longest_name);
    h.items = count(r, "items");
    h.batch = static_cast<uint32_t>(count(r, "batch", 1, 1, most_batch));
    h.shards = static_cast<uint32_t>(count(r, "shards", 1, 1, most_shards));
    h.shard = static_cast<uint32_t>(count(r, "shard", 1, 1, h.shards));
    h.missing_shards = static_cast<uint32_t>(count(r, "missing_shards", 0, 0, most_shards));
    h.command = text_or_none(r, "command", longest_text);
    h.facts = read_pairs(r, "facts", most_facts, longest_text);
    if (const auto plan = r.find("plan")) h.plan = read_plan(*plan);
    check_plan_of(h, file);
    return h;
}

std::string header_line(const Header &h) {
    JsonWriter json;
    const auto text = [&](const char *key, const std::string &value) {
        json.member(key, cut(value, longest_text / 3));
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
            write_pair(json, checked_name(name, "library", true), cut(file, longest_text / 3));
        json.end_array();
    }
    text("model", h.model);
    text("machine", h.machine);
    text("title", h.title);
    json.member("reference", checked_name(h.reference, "reference", false));
    json.key("arms").begin_array();
    for (const Arm &arm : h.arms)
        write_pair(json, checked_name(arm.name, "arm", true), cut(arm.text, longest_text / 3));
    json.end_array().key("contrasts").begin_array();
    for (const PlannedContrast &c : h.contrasts) {
        json.begin_array().value(checked_name(c.a, "arm", true));
        json.value(checked_name(c.b, "arm", true));
        if (!c.on.empty()) json.value(cut(c.on, 2 * longest_name + 1));
        json.end_array();
    }
    json.end_array().key("sweeps").begin_array();
    for (const std::string &arm : h.sweeps) json.value(checked_name(arm, "arm", true));
    json.end_array();
    if (!h.own_prefills.empty()) {
        json.key("own_prefills").begin_array();
        for (const auto &[arm, budget] : h.own_prefills)
            write_pair(json, checked_name(arm, "arm", true), checked_name(budget, "budget", true));
        json.end_array();
    }
    const Statistics &s = h.statistics;
    json.key("statistics").begin_object().member("confidence", s.confidence);
    json.member("resamples", s.resamples).member("seed", s.seed).member("primary", s.primary);
    json.key("margins").begin_object();
    for (const auto &[metric, margin] : s.margins)
        json.member(checked_name(metric, "metric", true), margin);
    json.end_object();
    if (s.looks != Looks::none) json.member("looks", looks_name(s.looks));
    json.end_object().member("items", h.items);
    if (h.batch > 1) json.member("batch", h.batch);
    json.member("shard", h.shard).member("shards", h.shards);
    if (h.missing_shards > 0) json.member("missing_shards", h.missing_shards);
    if (!h.command.empty()) text("command", h.command);
    json.key("facts").begin_array();
    for (const auto &[name, fact] : h.facts)
        write_pair(json, checked_name(name, "fact", true), cut(fact, longest_text / 3));
    json.end_array();
    if (h.plan) {
        json.key("plan");
        write_plan(json, *h.plan);
    }
    json.end_object();
    return line_of(json);
}

} // namespace keel::ab
