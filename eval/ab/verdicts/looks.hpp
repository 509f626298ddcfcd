#pragma once

#include "eval/ab/verdicts/verdict.hpp"
#include "eval/stats/group_sequential.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

// Records looks. A look is one evaluation of the results so far. If a plan has a rule for early
// looks, each look spends a part of the level. So the file looks.jsonl in the folder of the results
// records every look.
namespace keel::ab {

class LookBook {
  public:
    static constexpr const char *file_name = "looks.jsonl";
    // most_looks: largest number of early looks. least_step: smallest share of the planned items
    // that a look must have in addition to the items of the look before.
    static constexpr size_t most_looks = 20;
    static constexpr double least_step = 0.01;

    // Makes a book without earlier looks.
    explicit LookBook(std::string plan) : plan_(std::move(plan)) {}
    // Reads the earlier looks under the plan with this hash. Throws Error(input) for a broken file.
    static LookBook read(const std::filesystem::path &folder, const std::string &plan);

    // Notes the present look at this contrast. Returns all looks at the contrast, including the
    // present one. Returns NULL if the present look must not have a verdict. There are three
    // reasons: the present look has fewer items than an earlier look, the present look has too few
    // additional items, or there were too many earlier looks. `planned` is the number of planned
    // items.
    std::shared_ptr<const SpendingLooks> look(const Contrast &contrast, uint64_t planned);

    // Appends the looks that look() noted to looks.jsonl, if at least one of these looks is new.
    // Throws Error(runtime) for errors of the system.
    void record(const std::filesystem::path &folder, const std::string &date) const;

  private:
    std::string plan_;
    // For each contrast: the number of items at each earlier look.
    std::map<std::string, std::set<uint64_t>> earlier_;
    std::vector<std::pair<std::string, uint64_t>> present_;
    bool has_new_ = false;
    uint64_t lines_ = 0;
    std::map<std::vector<double>, std::shared_ptr<const SpendingLooks>> known_;
};

// Copies the looks from the folders of `shards` to `folder`, so that the merged results keep the
// looks. Each line is copied once.
void carry_looks(const std::vector<std::filesystem::path> &shards,
                 const std::filesystem::path &folder);

} // namespace keel::ab
