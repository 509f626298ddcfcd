#include "text/normalizer.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utf8proc.h>

namespace keel {

namespace {

bool is_ascii(std::string_view text) noexcept {
    return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Appends the composed form of a stretch that no composition crosses the borders of.
void compose_stretch(std::string_view text, utf8proc_option_t options, std::string &out) {
    utf8proc_uint8_t *mapped = nullptr;
    const utf8proc_ssize_t length =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t *>(text.data()),
                     static_cast<utf8proc_ssize_t>(text.size()), &mapped, options);
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
    if (length < 0)
        throw_error(length == UTF8PROC_ERROR_NOMEM ? ErrorKind::resource : ErrorKind::input,
                    "a text of {} bytes cannot be composed (NFC): {}", text.size(), utf8proc_errmsg(length));
    out.append(reinterpret_cast<const char *>(mapped), static_cast<std::size_t>(length));
}

// No tokenizer makes a text more than three times as long (a space becomes U+2581), and no word may have 2 GiB.
[[noreturn]] void too_long(std::size_t bytes) {
    throw_error(
        ErrorKind::input,
        "a text of {} bytes becomes too long when the tokenizer normalizes it; at most 16 times its length "
        "and 2 GiB are allowed",
        bytes);
}

std::size_t longest_result(std::size_t bytes) {
    return std::min(bytes * 16 + 4096, (std::size_t{1} << 31) - 1);
}

std::string replace_all(std::string_view text, const std::string &from, const std::string &to,
                        std::size_t most) {
    std::string out;
    std::size_t at = 0;
    for (std::size_t hit = text.find(from); hit != std::string_view::npos; hit = text.find(from, at)) {
        out.append(text, at, hit - at);
        out += to;
        at = hit + from.size();
        if (out.size() > most) too_long(text.size());
    }
    out.append(text, at);
    return out;
}

} // namespace

std::string compose_unicode(std::string_view text, bool compatibility) {
    // utf8proc takes four bytes for each of the text's, so a long text is composed in stretches. They begin with ASCII,
    // which no composition ends in.
    constexpr std::size_t stretch = 1 << 16;
    if (is_ascii(text)) return std::string(text);
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE |
                                                        (compatibility ? UTF8PROC_COMPAT : 0));
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        std::size_t end = std::min(stretch, text.size());
        while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80)
            ++end;
        compose_stretch(text.substr(0, end), options, out);
        text.remove_prefix(end);
    }
    return out;
}

bool TextNormalizer::may_change(std::string_view text) const noexcept {
    return std::any_of(steps_.begin(), steps_.end(), [&](const auto &step) {
        if (const auto *replace = std::get_if<Replace>(&step))
            return text.find(replace->from) != std::string_view::npos;
        return std::holds_alternative<Prefix>(step) || !is_ascii(text);
    });
}

std::string TextNormalizer::apply(std::string_view text, bool prefix, std::vector<TextRange> &ranges) const {
    // The text falls into stretches at the borders of the ranges; each is normalized by itself, so that the ranges can
    // be found again. What stands at such a border, a line break or a mark, composes with nothing.
    struct Stretch {
        std::string text;
        bool in_range;
    };
    std::vector<Stretch> stretches;
    const auto add = [&](std::size_t begin, std::size_t end, bool in_range) {
        if (begin < end) stretches.push_back({std::string(text.substr(begin, end - begin)), in_range});
    };
    std::size_t at = 0;
    for (const TextRange &range : ranges) {
        add(at, range.begin, false);
        add(range.begin, range.end, true);
        at = range.end;
    }
    add(at, text.size(), false);

    for (const auto &step : steps_) {
        if (const auto *added = std::get_if<Prefix>(&step)) {
            if (prefix && !stretches.empty()) stretches.insert(stretches.begin(), {added->text, false});
            continue;
        }
        for (Stretch &s : stretches) {
            if (const auto *replace = std::get_if<Replace>(&step))
                s.text = replace_all(s.text, replace->from, replace->to, longest_result(text.size()));
            else
                s.text = compose_unicode(s.text, std::get<Compose>(step).compatibility);
        }
    }
    std::string out;
    ranges.clear();
    for (const Stretch &s : stretches) {
        const std::size_t begin = out.size();
        out += s.text;
        if (s.in_range && out.size() > begin) ranges.push_back({begin, out.size()});
        if (out.size() > longest_result(text.size())) too_long(text.size());
    }
    return out;
}

} // namespace keel
