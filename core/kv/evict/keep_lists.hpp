#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace keel {

// One head (or all heads that share one keep-list) about to be decided on.
struct HeadBudget {
    int64_t length = 0;                    // slots in use
    int64_t budget = 0;                    // slots that may stay
    const uint8_t *is_protected = nullptr; // [length]; all of them stay, even beyond the budget
    const uint8_t *stays =
        nullptr; // [length]; stay as far as the budget holds them, the newest first. NULL: none
};

// Who is being decided on, for messages: made into words only where one is needed.
class Who {
  public:
    Who(std::string name) : make_([name = std::move(name)] { return name; }) {}
    Who(const char *name) : Who(std::string(name)) {}
    Who(std::function<std::string()> make) : make_(std::move(make)) {}
    std::string text() const { return make_(); }

  private:
    std::function<std::string()> make_;
};

// The protected slots, those that stay, and the best-scored others within the budget; of equal
// scores the newer slot stays. Throws Error(plugin) "WHO: ... slot 7 ..." for a NaN. scores
// [length]. `order` is scratch.
void keep_best(const HeadBudget &head, const float *scores, const Who &who,
               std::vector<int32_t> &order, std::vector<int32_t> &keep);

// A policy's own list, checked (strictly rising, in range, else Error(plugin) "WHO: ..."), with the
// protected slots added and, if it is above the budget, the oldest unprotected ones cut.
void keep_listed(const HeadBudget &head, std::span<const int32_t> listed, const Who &who,
                 std::vector<int32_t> &keep);

// The length of the shortest list.
int64_t shortest(const std::vector<std::vector<int32_t>> &keep);

// Cuts the oldest unprotected slots until `count` are left (or only protected ones).
void cut_oldest(const HeadBudget &head, int64_t count, std::vector<int32_t> &keep);

} // namespace keel
