// The operations on strings that filters and methods share.
#include "base/display.hpp"
#include "text/jinja/string_methods.hpp"
#include "text/utf8.hpp"

#include <cstring>
#include <utf8proc.h>

namespace keel::jinja {
namespace {

// Python's white space.
bool is_blank_char(char32_t c) { return is_unicode_space(c) || (c >= 0x1C && c <= 0x1F); }

bool is_cased(char32_t c) {
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT: return true;
    default: return false;
    }
}

void add_upper(std::string &out, char32_t c) {
    if (c == 0xDF) { // the German sharp s; its upper case is two letters
        out += "SS";
        return;
    }
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void add_title(std::string &out, char32_t c) {
    if (c == 0xDF) {
        out += "Ss";
        return;
    }
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

void add_lower(std::string &out, char32_t c) {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

// Writes each character with put(out, character). The marks of the text stay.
template <typename Put> Text mapped(const Text &text, Meter &meter, Put &&put) {
    meter.bytes(3 * text.size());
    Text out;
    text.each_run([&](std::string_view run, bool is_data) {
        std::string bytes;
        for (std::size_t at = 0; at < run.size();) put(bytes, next_code_point(run, at));
        out.append(bytes, is_data);
    });
    return out;
}

} // namespace

std::size_t find_text(std::string_view in, std::string_view what, std::size_t from, Meter &meter) {
    if (from > in.size()) return std::string::npos;
    if (what.empty()) return from;
    // memmem takes linear time; string_view::find does not
    const void *found = ::memmem(in.data() + from, in.size() - from, what.data(), what.size());
    const std::size_t at =
        found == nullptr ? std::string::npos
                         : static_cast<std::size_t>(static_cast<const char *>(found) - in.data());
    meter.steps(1);
    meter.bytes((found == nullptr ? in.size() : at) - from + what.size());
    return at;
}

Text strip(const Text &text, Ends ends, const std::optional<Text> &chars, Meter &meter) {
    const std::string_view bytes = text.bytes();
    meter.bytes(bytes.size());
    std::size_t from = 0, to = bytes.size();
    const auto removes = [&](std::size_t at, std::size_t end) {
        if (!chars) {
            std::size_t next = at;
            return is_blank_char(next_code_point(bytes, next));
        }
        return find_text(chars->bytes(), bytes.substr(at, end - at), 0, meter) != std::string::npos;
    };
    if (ends != Ends::right)
        while (from < to) {
            const std::size_t next = from + utf8_length(bytes, from);
            if (!removes(from, next)) break;
            from = next;
        }
    if (ends != Ends::left)
        while (to > from) {
            std::size_t last = to - 1;
            while (last > from && (static_cast<unsigned char>(bytes[last]) & 0xC0) == 0x80) --last;
            if (!removes(last, to)) break;
            to = last;
        }
    return text.part(from, to);
}

Text to_upper(const Text &text, Meter &meter) { return mapped(text, meter, add_upper); }
Text to_lower(const Text &text, Meter &meter) { return mapped(text, meter, add_lower); }

Text to_capitalized(const Text &text, Meter &meter) {
    bool is_first = true;
    return mapped(text, meter, [&](std::string &out, char32_t c) {
        std::exchange(is_first, false) ? add_title(out, c) : add_lower(out, c);
    });
}

Text to_title(const Text &text, Meter &meter) {
    bool after_letter = false;
    return mapped(text, meter, [&](std::string &out, char32_t c) {
        after_letter ? add_lower(out, c) : add_title(out, c);
        after_letter = is_cased(c);
    });
}

Text replace(const Text &text, const Text &old, const Text &by, std::int64_t count, Meter &meter) {
    const std::string_view bytes = text.bytes();
    const std::uint64_t most = count < 0 ? UINT64_MAX : static_cast<std::uint64_t>(count);
    meter.bytes(bytes.size());
    Text out;
    std::uint64_t done = 0;
    std::size_t at = 0;
    while (done < most) {
        const std::size_t next = find_text(bytes, old.bytes(), at, meter);
        if (next == std::string::npos) break;
        meter.bytes(by.size());
        out.append_part(text, at, next);
        out.append(by);
        ++done;
        at = next + old.size();
        if (!old.empty()) continue;
        // an empty text is found before each character and at the end
        if (at >= bytes.size()) return out;
        const std::size_t behind = at + utf8_length(bytes, at);
        out.append_part(text, at, behind);
        at = behind;
    }
    out.append_part(text, at, bytes.size());
    return out;
}

std::vector<Text> split_lines(const Text &text, bool keep_ends, Meter &meter) {
    const std::string_view bytes = text.bytes();
    meter.bytes(2 * bytes.size());
    std::vector<Text> out;
    std::size_t from = 0;
    for (std::size_t at = 0; at < bytes.size();) {
        std::size_t next = at;
        const char32_t c = next_code_point(bytes, next);
        const bool ends = (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                          c == 0x2028 || c == 0x2029;
        if (!ends) {
            at = next;
            continue;
        }
        if (c == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
        meter.bytes(sizeof(Text));
        out.push_back(text.part(from, keep_ends ? next : at));
        from = at = next;
    }
    if (from < bytes.size()) out.push_back(text.part(from, bytes.size()));
    return out;
}

namespace {

// Writes a number for %d, %f, %x...
std::string formatted_number(const Value &value, char type, int precision) {
    if (!value.is_number())
        fail("expected a number for %{} in a format, found {}", type, type_name(value));
    if (type == 'f') return fmt::format("{:.{}f}", value.real(), precision < 0 ? 6 : precision);
    std::int64_t whole = value.integer();
    if (value.is(Kind::real)) {
        if (!(value.real() > -9e18 && value.real() < 9e18) || type == 'x')
            fail("expected an integer for %{} in a format, found {}", type, type_name(value));
        whole = static_cast<std::int64_t>(value.real());
    }
    return type == 'x' ? fmt::format("{:x}", whole) : std::to_string(whole);
}

} // namespace

Value percent_format(Evaluator &evaluator, const Text &format, const Value &arguments) {
    const bool is_tuple = arguments.is(Kind::list) && arguments.list().form == ListForm::tuple;
    const std::size_t count = is_tuple ? arguments.list().items.size() : 1;
    std::size_t used = 0;
    const auto next = [&]() -> const Value & {
        if (used >= count) fail("a format with % needs more than the {} values that it got", count);
        return is_tuple ? arguments.list().items[used++] : (++used, arguments);
    };
    const std::string_view bytes = format.bytes();
    evaluator.meter().bytes(bytes.size());
    Text out;
    std::size_t from = 0;
    for (std::size_t at = bytes.find('%'); at != std::string::npos; at = bytes.find('%', from)) {
        out.append_part(format, from, at);
        std::size_t end = at + 1;
        int precision = -1;
        if (end < bytes.size() && bytes[end] == '.') {
            precision = 0;
            for (++end; end < bytes.size() && bytes[end] >= '0' && bytes[end] <= '9'; ++end)
                precision = std::min(precision * 10 + (bytes[end] - '0'), 60);
        }
        const char type = end < bytes.size() ? bytes[end] : '\0';
        if (type == '%') {
            out.append("%", false);
        } else if (type == 's' && precision < 0) {
            out.append(evaluator.text_of(next()));
        } else if (type == 'r' && precision < 0) {
            out.append(to_repr(next(), evaluator.meter()));
        } else if (type == 'd' || type == 'i' || type == 'f' || type == 'x') {
            out.append(formatted_number(next(), type, precision), false);
        } else {
            fail("a format has {}; %s, %r, %d, %i, %x, %f, %.2f and %% are supported",
                 quote_text(bytes.substr(at, 2)));
        }
        from = end + 1;
    }
    if (is_tuple && used < count)
        fail("a format with % uses {} values, but it got {}", used, count);
    out.append_part(format, std::min(from, bytes.size()), bytes.size());
    return evaluator.string(std::move(out));
}

} // namespace keel::jinja
