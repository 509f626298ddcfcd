#include "eval/ab/records/metric.hpp"

#include <algorithm>
#include <iterator>

namespace keel::ab {
namespace {

// True if one of `words` is a part of the name between underscores.
bool has_word(std::string_view name, std::initializer_list<std::string_view> words) {
    while (!name.empty()) {
        const size_t end = std::min(name.find('_'), name.size());
        if (std::find(words.begin(), words.end(), name.substr(0, end)) != words.end()) return true;
        name.remove_prefix(std::min(end + 1, name.size()));
    }
    return false;
}

} // namespace

Metric metric_named(std::string_view name) {
    if (name.ends_with("_per_second")) return {Metric::Kind::speed, true, true};
    if (has_word(name, {"ms", "us", "ns", "seconds"})) return {Metric::Kind::speed, false, true};
    if (has_word(name, {"bytes", "kib", "mib"})) return {Metric::Kind::memory, false, true};
    if (has_word(name, {"kld", "ppl", "perplexity"}))
        return {Metric::Kind::divergence, false, true};
    if (has_word(name, {"nll"})) return {Metric::Kind::divergence, false, false};
    return {};
}

bool is_distance(std::string_view name) { return name == "kld" || name == "top1"; }

} // namespace keel::ab
