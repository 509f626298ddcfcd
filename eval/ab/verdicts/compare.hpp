#pragma once

#include "eval/ab/verdicts/verdict.hpp"

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

// Compares two experiments, cell by cell and item by item: for example two commits, machines or
// quantizations.
namespace keel {

struct AbCompareOptions {
    AbMargins margins;                // of these metrics; else the first experiment's own
    std::optional<double> confidence; // else the first experiment's own
    std::vector<std::string> arms, tasks, metrics; // none: all
    bool speed = false;                            // times, rates and bytes decide as well
    bool strict = false;                           // pass only what is shown to be non-inferior
};

struct AbComparison {
    AbStatistics statistics;
    std::string first, second;         // what they are: title, commit, model
    bool same_config = false;          // config hashes are equal: one program, one experiment
    bool same_experiment = false;      // but for the program
    std::vector<AbContrast> contrasts; // A: the second experiment, B: the first
    std::vector<std::string> notes;    // cells and items that only one has, differing models
    uint64_t decided = 0;              // contrasts that count
    uint64_t worse = 0;                // of these, shown to be worse by more than the margin
    uint64_t unproven = 0;             // of these, neither that nor shown to be non-inferior
    uint64_t lost = 0;                 // cells of the first experiment that the second lacks
    uint64_t lost_items = 0; // numbers of the first that the second lacks, in cells that both have
    bool strict = false;

    // No worse than the margin, as the options ask for it.
    bool passed() const {
        return worse == 0 && (!strict || (unproven == 0 && lost + lost_items == 0));
    }
};

// `first` and `second`: folders or results files. Throws Error(input) where they have no cell in
// common, and where items of one name are not the same: other documents, depths or answers, or
// prompts of another length under the same model.
AbComparison compare_ab(const std::filesystem::path &first, const std::filesystem::path &second,
                        const AbCompareOptions &options);

std::string ab_comparison_text(const AbComparison &comparison);
nlohmann::ordered_json ab_comparison_json(const AbComparison &comparison);

} // namespace keel
