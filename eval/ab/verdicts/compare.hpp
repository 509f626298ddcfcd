#pragma once

#include "eval/ab/verdicts/verdict.hpp"

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

// Compares two experiments, cell by cell and item by item. Examples are experiments at two commits,
// on two machines, or with two quantizations.
namespace keel::ab {

struct CompareOptions {
    Margins margins; // margins that replace the first experiment's margins of the same metrics
    std::optional<double> confidence; // nullopt: the confidence of the first experiment
    std::vector<std::string> arms, tasks, metrics; // names to compare; empty: all
    // If true, contrasts of times, rates and bytes decide too.
    bool speed = false;
    // If true, the comparison passes only if every deciding contrast is shown to be non-inferior.
    bool strict = false;
};

struct Comparison {
    Statistics statistics;
    std::string first, second;       // title, commit and model of each experiment
    bool same_config = false;        // the config hashes are equal: the same build of Keel ran the
                                     // same experiment
    bool same_experiment = false;    // the same experiment, possibly run by another build of Keel
    std::vector<Contrast> contrasts; // A is the second experiment, B is the first
    // Notes about cells and items that only one experiment has, and about different models.
    std::vector<std::string> notes;
    // Number of deciding contrasts: the contrasts that decide whether the comparison passes.
    uint64_t decided = 0;
    // Number of deciding contrasts whose loss is shown to be larger than the margin.
    uint64_t worse = 0;
    // Number of deciding contrasts with an open result: the data do not show whether the loss is
    // larger or smaller than the margin.
    uint64_t unproven = 0;
    // Number of cells of the first experiment that are missing in the second experiment.
    uint64_t lost = 0;
    // Number of items of the first experiment that are missing in the second experiment, in cells
    // that both experiments have.
    uint64_t lost_items = 0;
    bool strict = false;
    // The reason why there is no verdict: a plan was changed, or one of the experiments has fewer
    // items than planned. Empty: there is a verdict.
    std::string label;

    // True if the comparison passes under the options.
    bool passed() const {
        return label.empty() && worse == 0 &&
               (!strict || (unproven == 0 && lost + lost_items == 0));
    }
};

// Compares the results of two experiments. `first` and `second` are folders or results files.
// Throws Error(input) if the results have no cell in common. Throws Error(input) if items with the
// same name have different contents: a different document, depth or expected answer, or a different
// prompt length with the same model.
Comparison compare_results(const std::filesystem::path &first, const std::filesystem::path &second,
                           const CompareOptions &options);

std::string text_of_comparison(const Comparison &comparison);
nlohmann::ordered_json comparison_json(const Comparison &comparison);

} // namespace keel::ab
