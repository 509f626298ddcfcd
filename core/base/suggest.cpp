#include "base/suggest.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

namespace keel {
namespace {

// Optimal string alignment distance. The operations are insert, delete, substitute, and swap of
// neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
    const size_t width = b.size() + 1;
    std::vector<size_t> d((a.size() + 1) * width);
    for (size_t i = 0; i <= a.size(); ++i) d[i * width] = i;
    for (size_t j = 0; j <= b.size(); ++j) d[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
            size_t best = std::min({d[(i - 1) * width + j] + 1, d[i * width + j - 1] + 1,
                                    d[(i - 1) * width + j - 1] + cost});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                best = std::min(best, d[(i - 2) * width + j - 2] + 1);
            }
            d[i * width + j] = best;
        }
    }
    return d.back();
}

} // namespace

std::string nearest_word(std::string_view word, std::span<const std::string> candidates) {
    if (word.size() > 256) return {};
    const size_t limit = std::max<size_t>(1, word.size() / 3);
    size_t best = limit + 1;
    std::string found;
    for (const std::string &candidate : candidates) {
        const size_t distance = edit_distance(word, candidate);
        if (distance < best) {
            best = distance;
            found = candidate;
        }
    }
    return found;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
    const std::string found = nearest_word(word, candidates);
    return found.empty() ? std::string{} : fmt::format("; did you mean '{}'?", found);
}

} // namespace keel
