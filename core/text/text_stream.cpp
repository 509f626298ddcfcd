#include "text/text_stream.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace keel {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
    for (std::size_t i = 0; i < stops_.size(); ++i) {
        const std::string &stop = stops_[i];
        if (stop.empty())
            throw_error(
                ErrorKind::usage,
                "stop string {} is empty, so it would end every text before the first character",
                i);
        if (!is_valid_utf8(stop))
            throw_error(ErrorKind::usage,
                        "stop string {} is not valid UTF-8, so no text can contain it", i);
        if (stop.size() > 65536)
            throw_error(ErrorKind::usage, "stop string {} is longer than 64 KiB", i);
        std::vector<std::uint32_t> border(stop.size(), 0);
        for (std::size_t k = 1; k < stop.size(); ++k) {
            std::uint32_t length = border[k - 1];
            while (length > 0 && stop[k] != stop[length]) length = border[length - 1];
            border[k] = stop[k] == stop[length] ? length + 1 : 0;
        }
        borders_.push_back(std::move(border));
    }
    matched_.assign(stops_.size(), 0);
}

std::size_t StopMatcher::advance(char byte) {
    std::size_t longest = 0;
    for (std::size_t i = 0; i < stops_.size(); ++i) {
        const std::string &stop = stops_[i];
        std::uint32_t &length = matched_[i];
        while (length > 0 && (length == stop.size() || stop[length] != byte))
            length = borders_[i][length - 1];
        if (stop[length] == byte) ++length;
        if (length == stop.size() && (!hit_ || stop.size() > stops_[*hit_].size())) hit_ = i;
        longest = std::max<std::size_t>(longest, length);
    }
    return longest;
}

void StopMatcher::push(std::string_view text, std::string &out) {
    if (hit_) return;
    if (stops_.empty()) {
        out += text;
        return;
    }
    std::size_t keep = held_.size();
    for (const char byte : text) {
        held_ += byte;
        keep = advance(byte);
        if (hit_) {
            out.append(held_, 0, held_.size() - stops_[*hit_].size());
            held_.clear();
            return;
        }
    }
    out.append(held_, 0, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
}

void StopMatcher::finish(std::string &out) {
    out += held_;
    held_.clear();
    std::fill(matched_.begin(), matched_.end(), 0);
}

void StopMatcher::reset() {
    held_.clear();
    hit_.reset();
    std::fill(matched_.begin(), matched_.end(), 0);
}

std::string TextStream::push(std::int32_t token) {
    std::string out;
    if (stops_.hit() || (options_.skip_special && tokenizer_->kind(token) == TokenKind::special))
        return out;
    std::string text;
    utf8_.push(tokenizer_->without_leading_space(token, at_start_), text);
    stops_.push(text, out);
    return out;
}

std::size_t TextStream::bytes_of(std::int32_t token) const {
    if (options_.skip_special && tokenizer_->kind(token) == TokenKind::special) return 0;
    bool at_start = at_start_;
    return tokenizer_->without_leading_space(token, at_start).size();
}

std::string TextStream::finish() {
    std::string out;
    if (stops_.hit()) return out;
    std::string text;
    utf8_.finish(text);
    stops_.push(text, out);
    if (!stops_.hit()) stops_.finish(out);
    return out;
}

std::string_view TextStream::stop_string() const noexcept {
    const auto index = stops_.hit_index();
    return index ? std::string_view(stops_.stops()[*index]) : std::string_view();
}

void TextStream::reset() {
    utf8_ = Utf8Stream();
    stops_.reset();
    at_start_ = !options_.continues && tokenizer_->adds_leading_space();
}

} // namespace keel
