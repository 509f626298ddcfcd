#include "eval/ab/records/metric.hpp"

#include <algorithm>
#include <iterator>

namespace keel {
namespace {

// Is one of `words` a part of the name, between underscores?
bool has_word(std::string_view name, std::initializer_list<std::string_view> words) {
    while (!name.empty()) {
        const size_t end = std::min(name.find('_'), name.size());
        if (std::find(words.begin(), words.end(), name.substr(0, end)) != words.end()) return true;
        name.remove_prefix(std::min(end + 1, name.size()));
    }
    return false;
}

} // namespace

AbMetric ab_metric(std::string_view name) {
    if (name.ends_with("_per_second")) return {AbMetric::Kind::speed, true, true};
    if (has_word(name, {"ms", "us", "ns", "seconds"})) return {AbMetric::Kind::speed, false, true};
    if (has_word(name, {"bytes", "kib", "mib"})) return {AbMetric::Kind::memory, false, true};
    if (has_word(name, {"kld", "ppl", "perplexity"}))
        return {AbMetric::Kind::divergence, false, true};
    if (has_word(name, {"nll"})) return {AbMetric::Kind::divergence, false, false};
    return {};
}

bool ab_is_distance(std::string_view name) { return name == "kld" || name == "top1"; }

} // namespace keel
