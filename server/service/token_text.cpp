#include "server/service/token_text.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iterator>

namespace keel::server {

double shown_logprob(double logprob) {
    return std::isfinite(logprob) ? std::max(logprob, least_logprob) : least_logprob;
}

double chosen_logprob(const api::Logprobs &token) {
    for (const api::TokenLogprob &other : token.top)
        if (other.id == token.chosen.id) return shown_logprob(other.logprob);
    return shown_logprob(token.chosen.logprob);
}

std::string token_name(const Tokenizer &tokenizer, int32_t id) {
    const std::string_view piece = tokenizer.piece(id);
    if (is_valid_utf8(piece)) return std::string(piece);
    std::string name = "bytes:";
    for (const char c : piece)
        fmt::format_to(std::back_inserter(name), "\\x{:02x}", static_cast<unsigned char>(c));
    return name;
}

int64_t OffsetCounter::push(const Tokenizer &tokenizer, int32_t id) {
    const int64_t offset = count_;
    if (tokenizer.kind(id) == TokenKind::special) return offset;
    piece_.clear();
    utf8_.push(tokenizer.without_leading_space(id, at_start_), piece_);
    count_ += count_characters(piece_);
    return offset;
}

int64_t count_characters(std::string_view text) noexcept {
    return std::count_if(text.begin(), text.end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

} // namespace keel::server
