#include "kv/evict/token_numbers.hpp"

namespace keel {

void TokenNumbers::append(int64_t seen, int64_t n) {
    for (auto &row : numbers_) {
        for (int64_t i = 0; i < n; ++i) row.push_back(static_cast<int32_t>(seen + i));
    }
}

void TokenNumbers::record_compact(size_t row, std::span<const int32_t> keep) {
    std::vector<int32_t> &numbers = numbers_[row];
    for (size_t i = 0; i < keep.size(); ++i) numbers[i] = numbers[static_cast<size_t>(keep[i])];
    numbers.resize(keep.size());
}

void TokenNumbers::truncate(int64_t n) {
    for (auto &row : numbers_) row.resize(row.size() - static_cast<size_t>(n));
}

void TokenNumbers::clear() {
    for (auto &row : numbers_) row.clear();
}

} // namespace keel
