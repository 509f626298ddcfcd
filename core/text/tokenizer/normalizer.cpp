#include "text/tokenizer/normalizer.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utf8proc.h>

namespace keel {

namespace {

bool is_ascii(std::string_view text) noexcept {
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Appends the composed form of a part of the text. The part must be chosen so that no composition
// crosses its borders.
void compose_stretch(std::string_view text, utf8proc_option_t options, std::string &out) {
    utf8proc_uint8_t *mapped = nullptr;
    const utf8proc_ssize_t length =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t *>(text.data()),
                     static_cast<utf8proc_ssize_t>(text.size()), &mapped, options);
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
    if (length < 0)
        throw_error(length == UTF8PROC_ERROR_NOMEM ? ErrorKind::resource : ErrorKind::input,
                    "a text of {} bytes cannot be composed (NFC): {}", text.size(),
                    utf8proc_errmsg(length));
    out.append(reinterpret_cast<const char *>(mapped), static_cast<std::size_t>(length));
}

// Throws the error for a text that becomes too long. No tokenizer makes a text more than three
// times as long (a space becomes U+2581). A word must have less than 2 GiB.
[[noreturn]] void too_long(std::size_t bytes) {
    throw_error(ErrorKind::input,
                "a text of {} bytes becomes too long when the tokenizer normalizes it; at most 16 "
                "times its length "
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
    for (std::size_t hit = text.find(from); hit != std::string_view::npos;
         hit = text.find(from, at)) {
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
    // utf8proc needs four bytes for each byte of text, so a long text is composed in parts. Each
    // part begins with an ASCII character, which never composes with the text before it.
    constexpr std::size_t stretch = 1 << 16;
    if (is_ascii(text)) return std::string(text);
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE |
                                                        (compatibility ? UTF8PROC_COMPAT : 0));
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        std::size_t end = std::min(stretch, text.size());
        while (end < text.size() && static_cast<unsigned char>(text[end]) >= 0x80) ++end;
        compose_stretch(text.substr(0, end), options, out);
        text.remove_prefix(end);
    }
    return out;
}

void TextNormalizer::add_composition(bool compatibility) {
    steps_.push_back(
        {compatibility ? Step::Kind::compose_compatibility : Step::Kind::compose, {}, {}, true});
}

void TextNormalizer::add_replacement(std::string from, std::string to) {
    steps_.push_back({Step::Kind::replace, std::move(from), std::move(to), true});
}

void TextNormalizer::add_prefix(std::string prefix, bool everywhere) {
    steps_.push_back({Step::Kind::prefix, {}, std::move(prefix), everywhere});
}

void TextNormalizer::add_space_collapse() {
    steps_.push_back({Step::Kind::collapse, {}, {}, true});
}

bool TextNormalizer::may_change(std::string_view text) const noexcept {
    return std::any_of(steps_.begin(), steps_.end(), [&](const Step &step) {
        if (step.kind == Step::Kind::replace) return text.find(step.from) != std::string_view::npos;
        return step.kind == Step::Kind::prefix || step.kind == Step::Kind::collapse ||
               !is_ascii(text);
    });
}

bool TextNormalizer::is_empty(const std::vector<Stretch> &stretches) noexcept {
    return std::all_of(stretches.begin(), stretches.end(),
                       [](const Stretch &s) { return s.text.empty(); });
}

void TextNormalizer::collapse(std::vector<Stretch> &stretches) {
    bool last_space = true; // true, because the start of a text counts like a space
    std::string *last = nullptr;
    for (Stretch &s : stretches) {
        std::string out;
        for (const char c : s.text) {
            if (c != ' ' || !last_space) out += c;
            last_space = c == ' ';
        }
        s.text = std::move(out);
        if (!s.text.empty()) last = &s.text;
    }
    if (last != nullptr && last->back() == ' ') last->pop_back();
}

std::string TextNormalizer::apply(std::string_view text, Place place,
                                  std::vector<TextRange> &ranges) const {
    // The text is split at the borders of the ranges. Each part is normalized on its own. So the
    // positions of the ranges in the result are known. The character at such a border (a line break
    // or a mark) composes with nothing.
    std::vector<Stretch> stretches;
    const auto add = [&](std::size_t begin, std::size_t end, bool in_range) {
        if (begin < end)
            stretches.push_back({std::string(text.substr(begin, end - begin)), in_range});
    };
    std::size_t at = 0;
    for (const TextRange &range : ranges) {
        add(at, range.begin, false);
        add(range.begin, range.end, true);
        at = range.end;
    }
    add(at, text.size(), false);

    for (const Step &step : steps_) {
        switch (step.kind) {
        case Step::Kind::prefix: {
            const bool wanted =
                !(place.at_start && place.continues) && (step.everywhere || place.at_start);
            if (wanted && !is_empty(stretches))
                stretches.insert(stretches.begin(), {step.to, false});
            break;
        }
        case Step::Kind::collapse: collapse(stretches); break;
        case Step::Kind::replace:
            for (Stretch &s : stretches)
                s.text = replace_all(s.text, step.from, step.to, longest_result(text.size()));
            break;
        case Step::Kind::compose:
        case Step::Kind::compose_compatibility:
            for (Stretch &s : stretches)
                s.text = compose_unicode(s.text, step.kind == Step::Kind::compose_compatibility);
            break;
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
