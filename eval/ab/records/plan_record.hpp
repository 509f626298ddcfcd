#pragma once

#include "base/json_reader.hpp"
#include "base/json_writer.hpp"

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The frozen plan of an experiment, as the header of its results records it. A plan is written
// before the run (`keel ab plan`). plan/frozen_plan.hpp makes and reads plans.
namespace keel::ab {

struct Header;
struct PlannedContrast;

// One binding fact of a plan: "statistics confidence" and "0.95". A list is several entries with
// one name.
struct PlanEntry {
    std::string name, value;
    auto operator<=>(const PlanEntry &) const = default;
};

// A difference between a plan and the experiment that ran. An empty text: the fact is missing.
struct PlanChange {
    std::string name, planned, now;
    bool operator==(const PlanChange &) const = default;
};

inline constexpr std::string_view plan_tests = "statistics tests in the family";

struct PlanRecord {
    std::string hash; // of all entries; see plan_hash()
    std::vector<PlanEntry> entries;
    // Differences of the experiment from the plan, which the user accepted. With any, all results
    // are exploratory.
    std::vector<PlanChange> changes;

    bool is_changed() const { return !changes.empty(); }
    // The value of the first entry with this name. Nothing if there is none.
    std::optional<std::string> find(std::string_view name) const;
    std::vector<std::string> all(std::string_view name) const;
    // The planned number of items of a task; for a speed task, of each length. 0: unknown.
    uint64_t items(const std::string &task) const;
    uint64_t documents(const std::string &task) const; // the same for documents
    // The number of planned tests, which share one adjustment. 0: unknown.
    uint64_t tests() const { return count(std::string(plan_tests)); }

  private:
    uint64_t count(const std::string &name) const;
};

// Names of entries.
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

// Each planned contrast as text, "window against full on passkey/hit", sorted, each once. Without
// `contrasts`: each of `arms` but `sweeps` against the reference on the primary metric.
std::vector<std::string> planned_texts(const std::vector<PlannedContrast> &contrasts,
                                       const std::vector<std::string> &arms,
                                       const std::vector<std::string> &sweeps,
                                       const std::string &reference, const std::string &primary);

// "statistics confidence: planned 0.95, now 0.9"
std::string change_text(const PlanChange &change);

void write_plan(JsonWriter &json, const PlanRecord &plan);
PlanRecord read_plan(const JsonNode &node);

// Checks that the header of the results was not edited after the run. Throws Error(input) in these
// cases: the hash of the plan's entries is not the recorded hash; or the header's statistics,
// contrasts or experiment differ from the plan, and the header records no change of the plan.
void check_plan_of(const Header &header, const std::string &file);

// Throws Error(input) if a run with the header `wanted` may not go on with the results `there`:
// they have another plan or none, or an earlier run changed the plan. `path`: the file of `there`,
// for the message.
void require_same_plan(const std::string &path, const Header &there, const Header &wanted);

// "the plan 0123456789abcdef", "the plan 0123456789abcdef, which was changed" or "no plan".
std::string plan_name(const Header &header);

} // namespace keel::ab
