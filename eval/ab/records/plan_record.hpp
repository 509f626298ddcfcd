#pragma once

#include "base/json_reader.hpp"
#include "base/json_writer.hpp"

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The frozen plan of an experiment, in the form that the header of the results records. `keel ab
// plan` writes a plan before the run. plan/frozen_plan.hpp makes and reads plans.
namespace keel::ab {

struct Header;
struct PlannedContrast;

// One entry of a plan: a name and a text, for example "statistics confidence" and "0.95". A list
// has several entries with the same name.
struct PlanEntry {
    std::string name, value;
    auto operator<=>(const PlanEntry &) const = default;
};

// A difference between a plan and the experiment that ran. If `planned` is empty, the plan does not
// have the entry. If `now` is empty, the experiment does not have the entry.
struct PlanChange {
    std::string name, planned, now;
    bool operator==(const PlanChange &) const = default;
};

inline constexpr std::string_view plan_tests = "statistics tests in the family";

struct PlanRecord {
    std::string hash; // hash of all entries; see plan_hash()
    std::vector<PlanEntry> entries;
    // The differences between the experiment and the plan that the user accepted. If there is at
    // least one difference, all results are exploratory.
    std::vector<PlanChange> changes;

    bool is_changed() const { return !changes.empty(); }
    // Returns the text of the first entry with this name; nullopt if no entry has the name.
    std::optional<std::string> find(std::string_view name) const;
    std::vector<std::string> all(std::string_view name) const;
    // The planned number of items of a task. For a speed task: the number of items of each length.
    // 0: unknown.
    uint64_t items(const std::string &task) const;
    uint64_t documents(const std::string &task) const; // planned number; 0: unknown
    // The number of planned tests, which share one adjustment. 0: unknown.
    uint64_t tests() const { return count(std::string(plan_tests)); }

  private:
    uint64_t count(const std::string &name) const;
};

// Names of entries in a plan.
inline constexpr std::string_view plan_hypotheses = "hypotheses", plan_contrasts = "contrasts",
                                  plan_primary = "primary",
                                  plan_confidence = "statistics confidence",
                                  plan_looks = "statistics looks",
                                  plan_reference = "experiment reference",
                                  plan_experiment = "experiment hash";
std::string plan_margin_name(std::string_view metric); // "margins hit"
std::string plan_items_name(std::string_view task);    // "tasks passkey items"
std::string plan_documents_name(std::string_view task);

inline constexpr size_t most_plan_entries = 20'000, longest_plan_text = 1200;

std::string plan_hash(const std::vector<PlanEntry> &entries);

// Returns each planned contrast as text, for example "window against full on passkey/hit". The
// texts are sorted and have no duplicates. If `contrasts` is empty, each of `arms` except `sweeps`
// is compared with the reference on the primary metric.
std::vector<std::string> planned_texts(const std::vector<PlannedContrast> &contrasts,
                                       const std::vector<std::string> &arms,
                                       const std::vector<std::string> &sweeps,
                                       const std::string &reference, const std::string &primary);

// The change as text, for example "statistics confidence: planned 0.95, now 0.9".
std::string change_text(const PlanChange &change);

void write_plan(JsonWriter &json, const PlanRecord &plan);
PlanRecord read_plan(const JsonNode &node);

// Checks that the header of the results was not edited after the run. Throws Error(input) in these
// cases: the hash of the plan's entries is not the recorded hash; or the header's statistics,
// contrasts or experiment differ from the plan, and the header records no change of the plan.
void check_plan_of(const Header &header, const std::string &file);

// Throws Error(input) if a run with the header `wanted` must not continue the results with the
// header `there`. There are two reasons: the results have a different plan or no plan, or an
// earlier run changed the plan. `path` is the file of the results, for the message.
void require_same_plan(const std::string &path, const Header &there, const Header &wanted);

// Returns the name of the header's plan: "the plan 0123456789abcdef", "the plan 0123456789abcdef,
// which was changed" or "no plan".
std::string plan_name(const Header &header);

} // namespace keel::ab
