#include "kv/evict/keep_lists.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace keel {

void keep_best(const HeadBudget &head, const float *scores, const Who &who,
               std::vector<int32_t> &order, std::vector<int32_t> &keep) {
    order.clear();
    int64_t held = 0;
    for (int32_t slot = 0; slot < head.length; ++slot) {
        if (std::isnan(scores[slot]))
            throw_error(ErrorKind::plugin, "{}: the score of slot {} is NaN", who.text(), slot);
        if (head.is_protected[slot] != 0) {
            ++held;
        } else {
            order.push_back(slot);
        }
    }
    const auto stays = [&head](int32_t slot) {
        return head.stays != nullptr && head.stays[slot] != 0;
    };
    const auto room =
        static_cast<size_t>(std::clamp<int64_t>(head.budget - held, 0, std::ssize(order)));
    const auto better = [scores](int32_t a, int32_t b) {
        return scores[a] != scores[b] ? scores[a] > scores[b] : a > b;
    };
    // Slots that must stay come first, beginning with the newest. The other slots follow.
    auto rest = order.begin();
    if (head.stays != nullptr) {
        rest = std::stable_partition(order.begin(), order.end(), stays);
        std::reverse(order.begin(), rest);
    }
    const auto end = order.begin() + static_cast<std::ptrdiff_t>(room);
    if (rest < end && end < order.end()) std::nth_element(rest, end, order.end(), better);
    keep.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(room));
    for (int32_t slot = 0; slot < head.length; ++slot) {
        if (head.is_protected[slot] != 0) keep.push_back(slot);
    }
    std::sort(keep.begin(), keep.end());
}

void keep_listed(const HeadBudget &head, std::span<const int32_t> listed, const Who &who,
                 std::vector<int32_t> &keep) {
    int64_t last = -1;
    for (const int32_t slot : listed) {
        if (slot < 0 || slot >= head.length) {
            throw_error(ErrorKind::plugin, "{}: the keep-list names slot {}, expected 0 to {}",
                        who.text(), slot, head.length - 1);
        }
        if (slot <= last) {
            throw_error(ErrorKind::plugin,
                        "{}: the keep-list is not strictly rising: slot {} comes after slot {}",
                        who.text(), slot, last);
        }
        last = slot;
    }
    keep.clear();
    size_t next = 0;
    for (int32_t slot = 0; slot < head.length; ++slot) {
        const bool wanted = next < listed.size() && listed[next] == slot;
        if (wanted) ++next;
        if (wanted || head.is_protected[slot] != 0) keep.push_back(slot);
    }
    cut_oldest(head, head.budget, keep);
}

int64_t shortest(const std::vector<std::vector<int32_t>> &keep) {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const auto &list : keep) least = std::min(least, std::ssize(list));
    return least;
}

void cut_oldest(const HeadBudget &head, int64_t count, std::vector<int32_t> &keep) {
    int64_t excess = std::ssize(keep) - count;
    if (excess <= 0) return;
    std::erase_if(keep, [&](int32_t slot) { // ascending, so the oldest slots are removed first
        const bool cut = excess > 0 && head.is_protected[slot] == 0;
        if (cut) --excess;
        return cut;
    });
}

} // namespace keel
