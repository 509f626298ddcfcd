#pragma once

#include "eval/ab/verdicts/verdict.hpp"

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

// Compares two experiments, cell by cell and item by item. They are for example of two commits,
// machines or quantizations.
namespace keel::ab {

struct CompareOptions {
    Margins margins;                  // replace the first experiment's margins of these metrics
    std::optional<double> confidence; // nullopt: the first experiment's
    std::vector<std::string> arms, tasks, metrics; // empty: all
    bool speed = false;                            // times, rates and bytes decide too
    bool strict = false; // pass only contrasts that are shown to be non-inferior
};

struct Comparison {
    Statistics statistics;
    std::string first, second;       // title, commit and model of each
    bool same_config = false;        // the config hashes are equal: the same program and experiment
    bool same_experiment = false;    // the same experiment, possibly another program
    std::vector<Contrast> contrasts; // A: the second experiment, B: the first
    std::vector<std::string> notes;  // cells and items that only one of them has, different models
    uint64_t decided = 0;            // contrasts that decide
    uint64_t worse = 0;              // of these, shown to be worse by more than the margin
    // Of these, shown neither to be worse by more than the margin nor to be non-inferior.
    uint64_t unproven = 0;
    uint64_t lost = 0; // cells of the first experiment that are missing in the second
    // Items of the first experiment that are missing in cells that both have.
    uint64_t lost_items = 0;
    bool strict = false;

    // Does the comparison pass, as the options define it?
    bool passed() const {
        return worse == 0 && (!strict || (unproven == 0 && lost + lost_items == 0));
    }
};

// `first` and `second`: folders or results files. Throws Error(input) if they have no cell in
// common, or if items with the same name have different contents: another document, depth or
// expected answer, or another length of prompt with the same model.
Comparison compare_results(const std::filesystem::path &first, const std::filesystem::path &second,
                           const CompareOptions &options);

std::string text_of_comparison(const Comparison &comparison);
nlohmann::ordered_json comparison_json(const Comparison &comparison);

} // namespace keel::ab
