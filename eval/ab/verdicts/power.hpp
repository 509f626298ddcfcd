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
    Margins margins;    // replace the results' own margins of these metrics
    double power = 0.8; // wanted
};

// One planned contrast.
struct PowerRow {
    Hypothesis hypothesis;
    // What the power is computed for: documents of the experiment, or rounds of a speed.
    uint64_t documents = 0;
    uint64_t pilot_documents = 0;
    std::string unknown; // why nothing is known about the power; empty: it is known
    // To find a true difference of the margin (the verdict "worse" for a loss), and the documents
    // for the wanted power. Nothing: no number of documents is enough.
    double find_power = 0;
    std::optional<uint64_t> find_needed;
    // To show non-inferiority by the margin, if the arms do not differ.
    double non_inferior_power = 0;
    std::optional<uint64_t> non_inferior_needed;
};

struct PowerTable {
    double power = 0.8;
    double level = 0; // of each contrast: (1 - confidence) / tests, the first step of Holm's method
    uint64_t tests = 0;
    std::vector<PowerRow> rows;

    // Contrasts whose margin is not reached with the wanted power, one line each.
    std::vector<std::string> warnings() const;
};

// Computes the power of the pilot's own planned contrasts, for the pilot's number of documents.
// Throws Error(input) if `options` has a margin for a metric that no planned contrast has.
PowerTable power_of_pilot(const Summary &pilot, const PowerOptions &options);

// The contrasts of an experiment that has not run yet. `plan`: its plan, with the number of
// documents. The contrasts are looked up in the pilot by arms, budgets, protocol, task and metric.
PowerTable power_of_experiment(const Summary &pilot, const Experiment &experiment,
                               const PlanRecord &plan, const PowerOptions &options);

std::string power_text(const PowerTable &table);
nlohmann::ordered_json power_json(const PowerTable &table);

} // namespace keel::ab
