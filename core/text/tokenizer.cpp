#include "text/tokenizer.hpp"

#include "base/error.hpp"
#include "text/utf8.hpp"

#include <algorithm>

namespace keel {

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
    // one third: each bad byte may grow to the three of U+FFFD
    constexpr std::size_t max_bytes = (std::size_t{1} << 31) - 1;
    std::string mended;
    if (text.size() <= max_bytes && !is_valid_utf8(text)) {
        mended = replace_invalid_utf8(text);
        text = mended;
    }
    if (text.size() >= max_bytes)
        throw_error(ErrorKind::input,
                    "a text of {} bytes is too long for the tokenizer; at most {} are taken", text.size(),
                    max_bytes - 1);
    std::vector<std::int32_t> ids;
    encode_valid(text, options, ids);
    return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
    std::string text;
    Utf8Stream stream;
    for (const std::int32_t id : ids)
        if (!skip_special || kind(id) != TokenKind::special) stream.push(piece(id), text);
    stream.finish(text);
    return text;
}

bool Tokenizer::ends_generation(std::int32_t id) const noexcept {
    return std::binary_search(end_ids_.begin(), end_ids_.end(), id);
}

void Tokenizer::set_marks(std::optional<std::int32_t> bos, std::optional<std::int32_t> eos,
                          std::vector<std::int32_t> end_ids) {
    bos_ = bos;
    eos_ = eos;
    std::sort(end_ids.begin(), end_ids.end());
    end_ids.erase(std::unique(end_ids.begin(), end_ids.end()), end_ids.end());
    end_ids_ = std::move(end_ids);
}

} // namespace keel
