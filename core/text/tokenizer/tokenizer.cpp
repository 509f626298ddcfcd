#include "text/tokenizer/tokenizer.hpp"

#include "base/error.hpp"
#include "text/utf8.hpp"

#include <algorithm>

namespace keel {

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
    const TextPart part{text, options.parse_special};
    return encode(std::span(&part, 1), options);
}

std::vector<std::int32_t> Tokenizer::encode(std::span<const TextPart> parts,
                                            EncodeOptions options) const {
    constexpr std::size_t max_bytes = (std::size_t{1} << 31) - 1;
    const auto too_long = [&](std::size_t bytes) {
        throw_error(ErrorKind::input,
                    "a text of {} bytes is too long for the tokenizer; expected at most {} bytes",
                    bytes, max_bytes - 1);
    };
    std::string joined; // holds the text if it cannot be used unchanged
    std::vector<TextRange> plain;
    std::size_t bytes = 0;
    const bool as_it_stands = parts.size() == 1 && is_valid_utf8(parts.front().text);
    for (const TextPart &part : parts) {
        const std::size_t begin = bytes;
        if (part.text.size() >= max_bytes - bytes) too_long(bytes + part.text.size());
        if (!as_it_stands) {
            joined += replace_invalid_utf8(part.text);
            // updates the size, because each invalid byte can have become the three bytes of U+FFFD
            bytes = joined.size();
            if (bytes >= max_bytes) too_long(bytes);
        } else {
            bytes += part.text.size();
        }
        if (!part.parse_special && bytes > begin) plain.push_back({begin, bytes});
    }
    std::vector<std::int32_t> ids;
    encode_valid({as_it_stands ? parts.front().text : std::string_view(joined), plain,
                  options.add_special && !options.continues, options.continues},
                 ids);
    return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, DecodeOptions options) const {
    std::string text;
    Utf8Stream stream;
    bool at_start = !options.continues && adds_leading_space();
    for (const std::int32_t id : ids) {
        if (options.skip_special && kind(id) == TokenKind::special) continue;
        stream.push(without_leading_space(id, at_start), text);
    }
    stream.finish(text);
    return text;
}

std::string_view Tokenizer::without_leading_space(std::int32_t id, bool &at_start) const noexcept {
    std::string_view bytes = piece(id);
    if (at_start && !bytes.empty()) {
        at_start = false;
        if (bytes.front() == ' ' && kind(id) == TokenKind::ordinary) bytes.remove_prefix(1);
    }
    return bytes;
}

bool Tokenizer::ends_generation(std::int32_t id) const noexcept {
    return std::binary_search(end_ids_.begin(), end_ids_.end(), id);
}

bool Tokenizer::adds_bos() const {
    if (!bos_) return false;
    const std::vector<std::int32_t> frame = encode("");
    return !frame.empty() && frame.front() == *bos_;
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
