#include "eval/ab/records/plan_record.hpp"

#include "base/display.hpp"
#include "base/fingerprint.hpp"
#include "eval/ab/records/json_fields.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace keel::ab {

namespace {

constexpr size_t longest_plan_name = 400;

std::vector<std::string> texts_of(const Header &h) {
    std::vector<std::string> arms;
    for (const Arm &arm : h.arms) arms.push_back(arm.name);
    return planned_texts(h.contrasts, arms, h.sweeps, h.reference, h.statistics.primary);
}

} // namespace

std::string plan_margin_name(std::string_view metric) { return fmt::format("margins {}", metric); }

std::string plan_items_name(std::string_view task) { return fmt::format("tasks {} items", task); }

std::string plan_documents_name(std::string_view task) {
    return fmt::format("tasks {} documents", task);
}

std::optional<std::string> PlanRecord::find(std::string_view name) const {
    const auto at = std::find_if(entries.begin(), entries.end(),
                                 [&](const PlanEntry &one) { return one.name == name; });
    return at == entries.end() ? std::nullopt : std::optional(at->value);
}

std::vector<std::string> PlanRecord::all(std::string_view name) const {
    std::vector<std::string> out;
    for (const PlanEntry &one : entries)
        if (one.name == name) out.push_back(one.value);
    return out;
}

uint64_t PlanRecord::items(const std::string &task) const { return count(plan_items_name(task)); }

uint64_t PlanRecord::documents(const std::string &task) const {
    return count(plan_documents_name(task));
}

uint64_t PlanRecord::count(const std::string &name) const {
    const std::string text = find(name).value_or("");
    uint64_t count = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    return error == std::errc{} && end == text.data() + text.size() ? count : 0;
}

std::string plan_hash(const std::vector<PlanEntry> &entries) {
    std::string text;
    for (const PlanEntry &one : entries)
        text +=
            fmt::format("{}:{}\n{}:{}\n", one.name.size(), one.name, one.value.size(), one.value);
    return fingerprint(text);
}

std::vector<std::string> planned_texts(const std::vector<PlannedContrast> &contrasts,
                                       const std::vector<std::string> &arms,
                                       const std::vector<std::string> &sweeps,
                                       const std::string &reference, const std::string &primary) {
    std::vector<std::string> out;
    const auto add = [&](const std::string &a, const std::string &b, const std::string &on) {
        // A contrast of an arm and the reference always compares the arm with the reference, even
        // if the experiment's file names the reference first.
        const bool is_turned = a == reference;
        out.push_back(fmt::format("{} against {} on {}", is_turned ? b : a, is_turned ? a : b,
                                  on.empty() ? primary : on));
    };
    for (const PlannedContrast &one : contrasts) add(one.a, one.b, one.on);
    if (contrasts.empty())
        for (const std::string &arm : arms)
            if (arm != reference && std::find(sweeps.begin(), sweeps.end(), arm) == sweeps.end())
                add(arm, reference, "");
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}

std::string change_text(const PlanChange &change) {
    const auto shown = [](const std::string &text) {
        return text.empty() ? std::string("nothing") : "'" + printable(text, 200) + "'";
    };
    return fmt::format("{}: planned {}, now {}", printable(change.name, 200), shown(change.planned),
                       shown(change.now));
}

void write_plan(JsonWriter &json, const PlanRecord &plan) {
    json.begin_object().member("hash", plan.hash).key("entries").begin_array();
    for (const PlanEntry &one : plan.entries) fields::write_pair(json, one.name, one.value);
    json.end_array().key("changes").begin_array();
    for (const PlanChange &one : plan.changes)
        json.begin_array().value(one.name).value(one.planned).value(one.now).end_array();
    json.end_array().end_object();
}

PlanRecord read_plan(const JsonNode &node) {
    PlanRecord plan;
    plan.hash = fields::needed_name(node, "hash");
    const JsonNode entries = node.at("entries");
    for (size_t i = 0; i < entries.size(most_plan_entries); ++i) {
        const JsonNode one = entries.element(i);
        if (one.size() != 2) one.expected("a pair of texts");
        plan.entries.push_back(
            {one.element(0).text(longest_plan_name), one.element(1).text(longest_plan_text)});
    }
    const JsonNode changes = node.at("changes");
    for (size_t i = 0; i < changes.size(most_plan_entries); ++i) {
        const JsonNode one = changes.element(i);
        if (one.size() != 3) one.expected("a name and two texts");
        plan.changes.push_back({one.element(0).text(longest_plan_name),
                                one.element(1).text(longest_plan_text),
                                one.element(2).text(longest_plan_text)});
    }
    return plan;
}

void check_plan_of(const Header &h, const std::string &file) {
    if (!h.plan) return;
    const PlanRecord &plan = *h.plan;
    const auto refuse = [&](const std::string &what) {
        throw_error(ErrorKind::input,
                    "{}: the header contradicts the plan in the header: {}; the header was edited, "
                    "and these results cannot be used under the plan; restore the file, or run the "
                    "experiment again",
                    printable(file, 300), what);
    };
    const std::string hash = plan_hash(plan.entries);
    if (hash != plan.hash)
        refuse(fmt::format("the plan's entries have the hash {}, expected {}", hash,
                           printable(plan.hash, 40)));
    if (plan.is_changed()) return;
    const auto check = [&](std::string_view name, const std::string &now) {
        const std::string planned = plan.find(name).value_or("");
        if (planned != now) refuse(change_text({std::string(name), planned, now}));
    };
    check(plan_experiment, h.experiment_hash);
    check(plan_reference, h.reference);
    check(plan_primary, h.statistics.primary);
    check(plan_confidence, fmt::format("{}", h.statistics.confidence));
    check("statistics resamples", fmt::format("{}", h.statistics.resamples));
    check("statistics seed", fmt::format("{}", h.statistics.seed));
    check(plan_looks, looks_name(h.statistics.looks));
    for (const PlanEntry &one : plan.entries) {
        if (!one.name.starts_with(plan_margin_name(""))) continue;
        const std::string metric = one.name.substr(plan_margin_name("").size());
        check(one.name, margin_text(margin_of(h.statistics.margins, metric), metric_named(metric)));
    }
    const std::vector<std::string> planned = plan.all(plan_contrasts), now = texts_of(h);
    if (planned != now)
        refuse(fmt::format("found the contrasts {}, expected the planned contrasts {}",
                           printable(fmt::format("{}", fmt::join(now, "; ")), 300),
                           printable(fmt::format("{}", fmt::join(planned, "; ")), 300)));
}

void require_same_plan(const std::string &path, const Header &there, const Header &wanted) {
    const std::string was = there.plan ? there.plan->hash : "",
                      now = wanted.plan ? wanted.plan->hash : "";
    if (was != now)
        throw_error(ErrorKind::input,
                    "{}: the results in this file were made under {}, but this run has {}; give "
                    "the same --plan, choose another output, or start again with --no-resume",
                    printable(path, 300), plan_name(there), plan_name(wanted));
    if (there.plan && there.plan->is_changed() && !wanted.plan->is_changed())
        throw_error(
            ErrorKind::input,
            "{}: an earlier run into this folder changed the plan {}, which cannot be taken "
            "back; choose another output, or start again with --no-resume",
            printable(path, 300), printable(was, 40));
}

std::string plan_name(const Header &h) {
    if (!h.plan) return "no plan";
    return fmt::format("the plan {}{}", printable(h.plan->hash, 40),
                       h.plan->is_changed() ? ", which was changed" : "");
}

} // namespace keel::ab
