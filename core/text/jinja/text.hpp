#pragma once

#include "text/tokenizer/text_range.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel::jinja {

// A UTF-8 string that records for each character whether the character comes from data (from a
// message, a tool or another value of the caller) or from the template. All functions that make a
// string from other strings keep these marks. Special tokens may be written only by the template.
class Text {
  public:
    Text() = default;
    Text(std::string bytes, bool is_data) : bytes_(std::move(bytes)) {
        if (is_data && !bytes_.empty()) data_.push_back({0, bytes_.size()});
    }

    const std::string &bytes() const noexcept { return bytes_; }
    std::size_t size() const noexcept { return bytes_.size(); }
    bool empty() const noexcept { return bytes_.empty(); }
    // The ranges of bytes that come from data; ascending, not empty, not adjacent.
    const std::vector<TextRange> &data() const noexcept { return data_; }

    void append(std::string_view bytes, bool is_data);
    void append(const Text &other) { append_part(other, 0, other.size()); }
    // Appends the bytes from `from` to `to` of another text.
    void append_part(const Text &other, std::size_t from, std::size_t to);
    Text part(std::size_t from, std::size_t to) const {
        Text out;
        out.append_part(*this, from, to);
        return out;
    }

    // Calls visit(bytes, is_data) for each run of characters with the same mark.
    template <typename Visit> void each_run(Visit &&visit) const {
        std::size_t at = 0;
        const std::string_view all = bytes_;
        for (const TextRange &range : data_) {
            if (range.begin > at) visit(all.substr(at, range.begin - at), false);
            visit(all.substr(range.begin, range.end - range.begin), true);
            at = range.end;
        }
        if (at < all.size()) visit(all.substr(at), false);
    }

  private:
    void mark(std::size_t from, std::size_t to);

    std::string bytes_;
    std::vector<TextRange> data_;
};

} // namespace keel::jinja
