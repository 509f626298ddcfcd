#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace keel {

// The input for choosing the slots of one head, or of all heads that share a keep-list.
struct HeadBudget {
    int64_t length = 0; // slots in use
    int64_t budget = 0; // slots that may stay
    // [length]: 1 for protected slots. All protected slots stay, even if they are more than the
    // budget.
    const uint8_t *is_protected = nullptr;
    // [length]: 1 for slots that stay at any score. If there are more such slots than the budget
    // allows, only the newest stay. NULL: there are no such slots.
    const uint8_t *stays = nullptr;
};

// Names the head in error messages. The text is made only if an error needs it.
class Who {
  public:
    Who(std::string name) : make_([name = std::move(name)] { return name; }) {}
    Who(const char *name) : Who(std::string(name)) {}
    Who(std::function<std::string()> make) : make_(std::move(make)) {}
    std::string text() const { return make_(); }

  private:
    std::function<std::string()> make_;
};

// Writes to `keep` the slots that stay, up to the budget. The order is: the protected slots, then
// the slots in HeadBudget::stays, then the slots with the highest scores. If two scores are equal,
// the newer slot stays. `scores`: [length]. `order`: scratch memory. Throws Error(plugin) "WHO: ...
// slot 7 ..." for a NaN.
void keep_best(const HeadBudget &head, const float *scores, const Who &who,
               std::vector<int32_t> &order, std::vector<int32_t> &keep);

// Writes to `keep` the slots in the policy's list and the protected slots. If these slots are more
// than the budget allows, removes the oldest unprotected slots. Throws Error(plugin) "WHO: ..." if
// the policy's list is not strictly rising or has a slot that does not exist.
void keep_listed(const HeadBudget &head, std::span<const int32_t> listed, const Who &who,
                 std::vector<int32_t> &keep);

// Returns the length of the shortest list.
int64_t shortest(const std::vector<std::vector<int32_t>> &keep);

// Removes the oldest unprotected slots until `count` slots are left, or until only protected slots
// are left.
void cut_oldest(const HeadBudget &head, int64_t count, std::vector<int32_t> &keep);

} // namespace keel
