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

// Looks at the results of a plan with a rule for early looks. They are recorded in looks.jsonl
// beside the results, because each look spends a part of the level.
namespace keel::ab {

class LookBook {
  public:
    static constexpr const char *file_name = "looks.jsonl";
    // The most early looks, and the least part of the planned items between two of them.
    static constexpr size_t most_looks = 20;
    static constexpr double least_step = 0.01;

    // Without earlier looks.
    explicit LookBook(std::string plan) : plan_(std::move(plan)) {}
    // Reads the earlier looks under the plan with this hash. Throws Error(input) for a broken file.
    static LookBook read(const std::filesystem::path &folder, const std::string &plan);

    // The looks at this contrast with the present one, which is noted. Nothing if this look may
    // have no verdict: it has fewer items than an earlier one, too few more, or too many looks were
    // made before. `planned`: the planned items.
    std::shared_ptr<const SpendingLooks> look(const Contrast &contrast, uint64_t planned);

    // Appends the looks that look() noted, if one of them is new. Throws Error(runtime) if the
    // system refuses.
    void record(const std::filesystem::path &folder, const std::string &date) const;

  private:
    std::string plan_;
    // By contrast: the items at each earlier look.
    std::map<std::string, std::set<uint64_t>> earlier_;
    std::vector<std::pair<std::string, uint64_t>> present_;
    bool has_new_ = false;
    uint64_t lines_ = 0;
    std::map<std::vector<double>, std::shared_ptr<const SpendingLooks>> known_;
};

// Copies the looks of the folders of `shards` to `folder`, so that a merge does not forget them.
// Each line is copied once.
void carry_looks(const std::vector<std::filesystem::path> &shards,
                 const std::filesystem::path &folder);

} // namespace keel::ab
