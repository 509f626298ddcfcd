#include "eval/stats/multiplicity.hpp"

#include "eval/stats/finite.hpp"

#include <algorithm>
#include <numeric>

namespace keel {

std::vector<double> holm(std::span<const double> p) {
    check_finite(p);
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
    std::vector<double> out(p.size());
    double most = 0;
    for (size_t i = 0; i < order.size(); ++i) {
        most = std::max(most, std::min(1.0, p[order[i]] * static_cast<double>(p.size() - i)));
        out[order[i]] = most;
    }
    return out;
}

} // namespace keel
