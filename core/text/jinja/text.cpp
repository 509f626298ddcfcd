#include "text/jinja/text.hpp"

#include <algorithm>

namespace keel::jinja {

void Text::mark(std::size_t from, std::size_t to) {
    if (from == to) return;
    if (!data_.empty() && data_.back().end == from)
        data_.back().end = to;
    else
        data_.push_back({from, to});
}

void Text::append(std::string_view bytes, bool is_data) {
    const std::size_t from = bytes_.size();
    bytes_.append(bytes);
    if (is_data) mark(from, bytes_.size());
}

void Text::append_part(const Text &other, std::size_t from, std::size_t to) {
    const std::size_t base = bytes_.size();
    bytes_.append(other.bytes_, from, to - from);
    auto range = std::partition_point(other.data_.begin(), other.data_.end(),
                                      [&](const TextRange &r) { return r.end <= from; });
    for (; range != other.data_.end() && range->begin < to; ++range)
        mark(base + std::max(range->begin, from) - from, base + std::min(range->end, to) - from);
}

} // namespace keel::jinja
