#pragma once

#include "eval/ab/plan/hypotheses.hpp"
#include "eval/ab/records/plan_record.hpp"
#include "eval/ab/verdicts/summary.hpp"

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

// The power of planned contrasts, and the number of documents that they need. The variance comes
// from a pilot: earlier results of the same arms on the same kind of documents.
namespace keel::ab {

struct PowerOptions {
    Margins margins;    // margins that replace the results' margins of the same metrics
    double power = 0.8; // the wanted power
};

// One planned contrast.
struct PowerRow {
    Hypothesis hypothesis;
    // The power is computed for this number of documents. For a speed task, this is the number of
    // rounds.
    uint64_t documents = 0;
    uint64_t pilot_documents = 0;
    std::string unknown; // the reason why the power is unknown; empty: the power is known
    // find_power: the probability to find a true difference that is as large as the margin. A loss
    // that is found has the verdict "worse". find_needed: the number of documents for the wanted
    // power. nullopt means that no number of documents is enough.
    double find_power = 0;
    std::optional<uint64_t> find_needed;
    // non_inferior_power: the probability to show non-inferiority by the margin if the arms do not
    // differ. non_inferior_needed: the number of documents for the wanted power. nullopt means that
    // no number of documents is enough.
    double non_inferior_power = 0;
    std::optional<uint64_t> non_inferior_needed;
};

struct PowerTable {
    double power = 0.8;
    // Level of each contrast: (1 - confidence) / tests, the first step of Holm's method.
    double level = 0;
    uint64_t tests = 0;
    std::vector<PowerRow> rows;

    // Returns one line for each contrast that has less than the wanted power for its margin.
    std::vector<std::string> warnings() const;
};

// Computes the power of the pilot's own planned contrasts, for the pilot's number of documents.
// Throws Error(input) if `options` has a margin for a metric that no planned contrast has.
PowerTable power_of_pilot(const Summary &pilot, const PowerOptions &options);

// Computes the power of the planned contrasts of an experiment that has not run yet. `plan` is the
// plan of the experiment, with the number of documents. Each contrast is looked up in the pilot by
// arms, budgets, protocol, task and metric.
PowerTable power_of_experiment(const Summary &pilot, const Experiment &experiment,
                               const PlanRecord &plan, const PowerOptions &options);

std::string power_text(const PowerTable &table);
nlohmann::ordered_json power_json(const PowerTable &table);

} // namespace keel::ab
