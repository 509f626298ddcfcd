#include "eval/ab/verdicts/labels.hpp"
#include "eval/ab/verdicts/summary.hpp"

#include <nlohmann/json.hpp>

namespace keel::ab {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::optional<double> &value) { return value ? Json(*value) : Json(); }

Json or_null(const std::optional<Interval> &i) {
    return i ? Json::array({i->low, i->high}) : Json();
}

const char *kind_name(Contrast::Kind kind) {
    switch (kind) {
    case Contrast::Kind::reference: return "reference";
    case Contrast::Kind::pair: return "pair";
    case Contrast::Kind::equal_bytes: return "equal_bytes";
    case Contrast::Kind::rerun: return "rerun";
    case Contrast::Kind::runs: break;
    }
    return "runs";
}

Json key_json(const CellKey &key) {
    Json j;
    j["arm"] = key.arm;
    j["budget"] = key.budget;
    j["protocol"] = key.protocol;
    j["task"] = key.task;
    j["metric"] = key.metric;
    return j;
}

Json cell_json(const CellSummary &one) {
    const Cell &cell = *one.cell;
    Json j = key_json(cell);
    j["higher_is_better"] = cell.kind.higher_is_better;
    j["items"] = one.items;
    j["documents"] = one.clusters;
    j["records"] = cell.records;
    j["mean"] = one.mean;
    j["interval"] = or_null(one.interval);
    j["median"] = one.median;
    j["p25"] = one.p25;
    j["p75"] = one.p75;
    j["p99"] = one.p99;
    j["kv_bytes"] = cell.kv_bytes;
    j["full_kv_bytes"] = cell.full_kv_bytes;
    j["own_full_kv_bytes"] = cell.own_full_kv_bytes;
    j["policy_bytes"] = cell.policy_bytes;
    j["peak_kv_bytes"] = cell.peak_kv_bytes;
    j["kept_slots"] = cell.kept_slots;
    j["seen"] = cell.seen;
    j["evictions"] = cell.evictions;
    j["eviction_us"] = cell.eviction_us;
    j["on_front"] = one.on_front;
    j["on_peak_front"] = one.on_peak_front;
    return j;
}

Json contrast_json(const Contrast &c) {
    Json j;
    j["kind"] = kind_name(c.kind);
    j["a"] = c.a;
    j["a_budget"] = c.a_budget;
    j["b"] = c.b;
    j["b_budget"] = c.b_budget;
    if (c.kind == Contrast::Kind::equal_bytes) {
        j["kv_bytes"] = c.at_bytes;
        j["a_peak_bytes"] = c.a_peak_bytes;
        j["b_peak_bytes"] = c.b_peak_bytes;
        j["a_interpolated"] = c.a_interpolated;
        j["b_interpolated"] = c.b_interpolated;
    }
    j["protocol"] = c.protocol;
    j["task"] = c.task;
    j["metric"] = c.metric;
    if (c.length >= 0) j["length"] = c.length;
    j["higher_is_better"] = c.meaning.higher_is_better;
    j["planned"] = c.planned;
    j["verdict"] = verdict_name(c.verdict);
    if (!c.label.empty()) j["label"] = c.label;
    j["within_margin"] = c.within_margin;
    j["non_inferior"] = c.non_inferior;
    if (c.kind == Contrast::Kind::runs) j["equal_rerun"] = c.is_equal_rerun;
    j["beyond_margin"] = c.beyond_margin;
    j["effect"] = c.items > 0 ? Json(c.effect) : Json();
    j["effect_is"] = c.is_size ? "size" : c.ratio ? "ratio" : "difference";
    j["geometric"] = c.geometric;
    j["interval"] = or_null(c.interval);
    j["interval_is"] = c.p ? "simultaneous" : "of this contrast by itself";
    j["open_ends"] = Json::array();
    if (c.low_is_open) j["open_ends"].push_back("low");
    if (c.high_is_open) j["open_ends"].push_back("high");
    j["interval_alone"] = or_null(c.interval_alone);
    j["method"] = c.method;
    j["standard_error"] = or_null(c.standard_error);
    j["p"] = or_null(c.p);
    j["p_adjusted"] = c.p ? Json(c.p_adjusted) : Json();
    j["margin"] = or_null(c.margin);
    j["p_within"] = or_null(c.p_within());
    j["p_within_adjusted"] = c.p_within() ? Json(c.p_within_adjusted()) : Json();
    j["p_non_inferior"] = or_null(c.p_non_inferior);
    j["p_non_inferior_adjusted"] = c.p_non_inferior ? Json(c.p_non_inferior_adjusted) : Json();
    j["family"] = c.family;
    j["family_size"] = c.family_size;
    j["detectable"] = or_null(c.detectable);
    j["noise"] = c.noise;
    j["mean_a"] = c.items > 0 ? Json(c.mean_a) : Json();
    j["mean_b"] = c.items > 0 ? Json(c.mean_b) : Json();
    j["b_is_implied"] = c.implied;
    j["items"] = c.items;
    j["documents"] = c.clusters;
    j["identical"] = c.identical;
    if (c.pair_counts)
        j["pairs"] = {{"both", c.pair_counts->both},
                      {"a_alone", c.pair_counts->first_only},
                      {"b_alone", c.pair_counts->second_only},
                      {"neither", c.pair_counts->neither}};
    j["only_a"] = c.only_a;
    j["only_b"] = c.only_b;
    j["text"] = verdict_line(c);
    return j;
}

Json contrasts_json(const std::vector<Contrast> &contrasts) {
    Json list = Json::array();
    for (const Contrast &c : contrasts) list.push_back(contrast_json(c));
    return list;
}

} // namespace

Json json_of_contrasts(const std::vector<Contrast> &contrasts) { return contrasts_json(contrasts); }

Json margins_json(const std::vector<Contrast> &contrasts) {
    Json all = Json::object();
    for (const Contrast &c : contrasts)
        if (c.margin)
            all[c.metric] = {{"margin", *c.margin},
                             {"unit", margin_unit(c.meaning)},
                             {"text", margin_text(*c.margin, c.meaning)}};
    return all;
}

Json summary_json(const Summary &s) {
    Json j;
    j["format"] = "keel-ab-summary/1";
    // The header in summary.json is equal to the header of the results.
    j["header"] = Json::parse(header_line(s.header));
    j["plan"] = plan_line(s.header);
    j["primary"] = s.primary;
    j["margins"] = margins_json(s.contrasts);
    j["records"] = s.records;
    j["cells"] = Json::array();
    for (const CellSummary &cell : s.cells) j["cells"].push_back(cell_json(cell));
    j["contrasts"] = contrasts_json(s.contrasts);
    j["equal_bytes"] = contrasts_json(s.equal_bytes);
    j["bytes_apart"] = Json::array();
    for (const Apart &one : s.apart)
        j["bytes_apart"].push_back({{"a", one.a},
                                    {"a_budget", one.a_budget},
                                    {"b", one.b},
                                    {"b_budget", one.b_budget},
                                    {"protocol", one.protocol},
                                    {"task", one.task},
                                    {"a_bytes", {one.a_bytes.low, one.a_bytes.high}},
                                    {"b_bytes", {one.b_bytes.low, one.b_bytes.high}},
                                    {"gap_bytes", one.gap_bytes()},
                                    {"text", apart_text(one)}});
    j["noise"] = contrasts_json(s.noise);
    j["speeds"] = Json::array();
    for (const SpeedRow &row : s.speeds) {
        Json one = key_json(row.key);
        one["length"] = row.length;
        one["items"] = row.items;
        one["median"] = row.median;
        one["p25"] = row.p25;
        one["p75"] = row.p75;
        one["p99"] = row.p99;
        j["speeds"].push_back(std::move(one));
    }
    j["warnings"] = Json::array();
    for (const Warning &w : s.warnings)
        j["warnings"].push_back({{"arm", w.arm},
                                 {"budget", w.budget},
                                 {"protocol", w.protocol},
                                 {"task", w.task},
                                 {"text", w.text}});
    j["notes"] = s.notes;
    return j;
}

} // namespace keel::ab
