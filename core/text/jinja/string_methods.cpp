// The methods of strings, as Python has them.
#include "text/jinja/string_methods.hpp"

#include "base/display.hpp"
#include "text/jinja/arguments.hpp"
#include "text/utf8.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <utf8proc.h>

namespace keel::jinja {
namespace {

using Parameters = std::vector<std::string_view>;
using Run = Value (*)(Evaluator &, const Text &, const Bound &);

struct StringMethod {
    Parameters parameters;
    Run run;
};

std::size_t find_last(std::string_view in, std::string_view what, Meter &meter) {
    meter.bytes(2 * (in.size() + what.size()));
    const std::string turned(in.rbegin(), in.rend()), turned_what(what.rbegin(), what.rend());
    const std::size_t at = find_text(turned, turned_what, 0, meter);
    return at == std::string::npos ? at : in.size() - at - what.size();
}

std::int64_t characters(std::string_view bytes) {
    return std::count_if(bytes.begin(), bytes.end(),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

Value texts(Evaluator &e, std::vector<Text> parts) {
    std::vector<Value> out;
    for (Text &part : parts) out.push_back(e.string(std::move(part)));
    return e.list(std::move(out));
}

bool is_blank_at(std::string_view bytes, std::size_t at) {
    const char32_t c = next_code_point(bytes, at);
    return is_unicode_space(c) || (c >= 0x1C && c <= 0x1F);
}

// split() without a separator: at runs of white space.
std::vector<Text> words(const Text &text, std::int64_t most, Meter &meter) {
    const std::string_view bytes = text.bytes();
    meter.bytes(2 * bytes.size());
    std::vector<Text> out;
    std::size_t at = 0;
    const auto skip = [&](bool blanks) {
        while (at < bytes.size() && is_blank_at(bytes, at) == blanks) at += utf8_length(bytes, at);
    };
    for (skip(true); at < bytes.size(); skip(true)) {
        const std::size_t from = at;
        if (most >= 0 && std::ssize(out) >= most) {
            out.push_back(strip(text.part(from, bytes.size()), Ends::right, {}, meter));
            break;
        }
        skip(false);
        out.push_back(text.part(from, at));
    }
    return out;
}

std::vector<Text> words_from_end(const Text &text, std::int64_t most, Meter &meter) {
    std::vector<Text> all = words(text, -1, meter);
    if (most < 0 || std::ssize(all) <= most + 1) return all;
    // the first part is the text before the last `most` words
    const std::string_view bytes = text.bytes();
    std::size_t end = bytes.size();
    for (std::int64_t i = 0; i < most; ++i) {
        const Text rest = strip(text.part(0, end), Ends::right, {}, meter);
        end = rest.size() - all[all.size() - 1 - static_cast<std::size_t>(i)].size();
    }
    std::vector<Text> out{strip(text.part(0, end), Ends::both, {}, meter)};
    out.insert(out.end(), all.end() - most, all.end());
    return out;
}

Value split(Evaluator &e, const Text &self, const Bound &a) {
    const std::int64_t most = a.integer(1, -1);
    if (a[0] == nullptr || a[0]->is(Kind::none)) return texts(e, words(self, most, e.meter()));
    const Text separator = a.needed_text(0);
    if (separator.empty()) fail("split: the separator is empty");
    std::vector<Text> out;
    std::size_t from = 0;
    while (most < 0 || std::ssize(out) < most) {
        const std::size_t at = find_text(self.bytes(), separator.bytes(), from, e.meter());
        if (at == std::string::npos) break;
        out.push_back(self.part(from, at));
        from = at + separator.size();
    }
    out.push_back(self.part(from, self.size()));
    return texts(e, std::move(out));
}

Value rsplit(Evaluator &e, const Text &self, const Bound &a) {
    const std::int64_t most = a.integer(1, -1);
    if (most < 0) return split(e, self, a);
    if (a[0] == nullptr || a[0]->is(Kind::none))
        return texts(e, words_from_end(self, std::min<std::int64_t>(most, 10000), e.meter()));
    const Text separator = a.needed_text(0);
    if (separator.empty()) fail("rsplit: the separator is empty");
    std::vector<Text> out;
    std::size_t end = self.size();
    while (std::ssize(out) < most) {
        const std::size_t at =
            find_last(std::string_view(self.bytes()).substr(0, end), separator.bytes(), e.meter());
        if (at == std::string::npos) break;
        out.push_back(self.part(at + separator.size(), end));
        end = at;
    }
    out.push_back(self.part(0, end));
    std::reverse(out.begin(), out.end());
    return texts(e, std::move(out));
}

template <bool last> Value partition(Evaluator &e, const Text &self, const Bound &a) {
    const Text separator = a.needed_text(0);
    if (separator.empty()) fail("partition: the separator is empty");
    const std::size_t at = last ? find_last(self.bytes(), separator.bytes(), e.meter())
                                : find_text(self.bytes(), separator.bytes(), 0, e.meter());
    std::vector<Value> out;
    if (at == std::string::npos) {
        out = {e.string(last ? Text() : self), e.string(Text()), e.string(last ? self : Text())};
    } else {
        out = {e.string(self.part(0, at)), e.string(separator),
               e.string(self.part(at + separator.size(), self.size()))};
    }
    return e.list(std::move(out), ListForm::tuple);
}

template <Ends ends> Value stripped(Evaluator &e, const Text &self, const Bound &a) {
    std::optional<Text> chars;
    if (a[0] != nullptr && !a[0]->is(Kind::none)) chars = a.needed_text(0);
    return e.string(strip(self, ends, chars, e.meter()));
}

// startswith and endswith, with one text or a tuple of texts.
template <bool at_end> Value has_affix(Evaluator &e, const Text &self, const Bound &a) {
    const auto has = [&](const Value &affix) {
        if (!affix.is(Kind::string))
            fail("{}: expected a string, found {}", at_end ? "endswith" : "startswith",
                 type_name(affix));
        e.meter().bytes(std::min(affix.bytes().size(), self.size()));
        return at_end ? self.bytes().ends_with(affix.bytes())
                      : self.bytes().starts_with(affix.bytes());
    };
    const Value &given = a.needed(0);
    if (!given.is(Kind::list)) return Value::boolean(has(given));
    const auto &all = given.list().items;
    e.meter().steps(all.size());
    return Value::boolean(std::any_of(all.begin(), all.end(), has));
}

template <bool last, bool must_exist> Value find(Evaluator &e, const Text &self, const Bound &a) {
    const Text what = a.needed_text(0);
    const std::string_view bytes = self.bytes();
    // `start` and `end` count characters
    const std::int64_t size = characters(bytes);
    e.meter().bytes(2 * self.size());
    const auto place = [&](std::size_t i, std::int64_t otherwise) {
        std::int64_t at = a.integer(i, otherwise);
        if (at < 0) at = std::max<std::int64_t>(at + size, 0);
        std::size_t byte = 0;
        for (std::int64_t n = 0; n < at && byte < bytes.size(); ++n)
            byte += utf8_length(bytes, byte);
        return at > size && !must_exist ? bytes.size() + 1 : byte;
    };
    const std::size_t from = place(1, 0), to = std::min(place(2, size), bytes.size());
    std::size_t found = std::string::npos;
    if (from <= to) {
        const std::string_view part = bytes.substr(from, to - from);
        found = last ? find_last(part, what.bytes(), e.meter())
                     : find_text(part, what.bytes(), 0, e.meter());
    }
    if (found == std::string::npos) {
        if (must_exist) fail("index: the string does not contain the text");
        return Value::integer(-1);
    }
    return Value::integer(characters(bytes.substr(0, from + found)));
}

Value count(Evaluator &e, const Text &self, const Bound &a) {
    const Text what = a.needed_text(0);
    if (what.empty()) return Value::integer(characters(self.bytes()) + 1);
    std::int64_t times = 0;
    for (std::size_t at = find_text(self.bytes(), what.bytes(), 0, e.meter());
         at != std::string::npos;
         at = find_text(self.bytes(), what.bytes(), at + what.size(), e.meter()))
        ++times;
    return Value::integer(times);
}

Value join(Evaluator &e, const Text &self, const Bound &a) {
    Text out;
    bool is_first = true;
    for (const Value &item : elements(a.needed(0), e.meter())) {
        if (!item.is(Kind::string)) fail("join: expected strings, found {}", type_name(item));
        e.meter().bytes(self.size() + item.bytes().size());
        if (!std::exchange(is_first, false)) out.append(self);
        out.append(item.text());
    }
    return e.string(std::move(out));
}

Value lines(Evaluator &e, const Text &self, const Bound &a) {
    return texts(e, split_lines(self, a.flag(0, false), e.meter()));
}

Value replaced_text(Evaluator &e, const Text &self, const Bound &a) {
    return e.string(replace(self, a.needed_text(0), a.needed_text(1), a.integer(2, -1), e.meter()));
}

template <Text (*change)(const Text &, Meter &)>
Value changed(Evaluator &e, const Text &self, const Bound &) {
    return e.string(change(self, e.meter()));
}

template <bool at_end> Value without_affix(Evaluator &e, const Text &self, const Bound &a) {
    const Text affix = a.needed_text(0);
    const std::size_t size = self.size();
    if (affix.empty()) return e.string(self);
    if (at_end && self.bytes().ends_with(affix.bytes()))
        return e.string(self.part(0, size - affix.size()));
    if (!at_end && self.bytes().starts_with(affix.bytes()))
        return e.string(self.part(affix.size(), size));
    return e.string(self);
}

bool is_digit_char(char32_t c) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}
bool is_letter(char32_t c) {
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool is_letter_or_digit(char32_t c) { return is_letter(c) || is_digit_char(c); }
bool is_white(char32_t c) { return is_unicode_space(c) || (c >= 0x1C && c <= 0x1F); }

template <bool (*belongs)(char32_t)> Value all_are(Evaluator &e, const Text &self, const Bound &) {
    e.meter().bytes(self.size());
    for (std::size_t at = 0; at < self.size();)
        if (!belongs(next_code_point(self.bytes(), at))) return Value::boolean(false);
    return Value::boolean(!self.empty());
}

template <utf8proc_category_t wanted, utf8proc_category_t other>
Value all_cased(Evaluator &e, const Text &self, const Bound &) {
    e.meter().bytes(self.size());
    bool found = false;
    for (std::size_t at = 0; at < self.size();) {
        const auto category =
            utf8proc_category(static_cast<utf8proc_int32_t>(next_code_point(self.bytes(), at)));
        if (category == other || category == UTF8PROC_CATEGORY_LT) return Value::boolean(false);
        found |= category == wanted;
    }
    return Value::boolean(found);
}

const std::map<std::string_view, StringMethod> &string_methods() {
    static const std::map<std::string_view, StringMethod> methods{
        {"strip", {{"chars"}, stripped<Ends::both>}},
        {"lstrip", {{"chars"}, stripped<Ends::left>}},
        {"rstrip", {{"chars"}, stripped<Ends::right>}},
        {"split", {{"sep", "maxsplit"}, split}},
        {"rsplit", {{"sep", "maxsplit"}, rsplit}},
        {"partition", {{"sep"}, partition<false>}},
        {"rpartition", {{"sep"}, partition<true>}},
        {"splitlines", {{"keepends"}, lines}},
        {"replace", {{"old", "new", "count"}, replaced_text}},
        {"startswith", {{"prefix"}, has_affix<false>}},
        {"endswith", {{"suffix"}, has_affix<true>}},
        {"removeprefix", {{"prefix"}, without_affix<false>}},
        {"removesuffix", {{"suffix"}, without_affix<true>}},
        {"find", {{"sub", "start", "end"}, find<false, false>}},
        {"rfind", {{"sub", "start", "end"}, find<true, false>}},
        {"index", {{"sub", "start", "end"}, find<false, true>}},
        {"count", {{"sub"}, count}},
        {"join", {{"iterable"}, join}},
        {"upper", {{}, changed<to_upper>}},
        {"lower", {{}, changed<to_lower>}},
        {"title", {{}, changed<to_title>}},
        {"capitalize", {{}, changed<to_capitalized>}},
        {"isdigit", {{}, all_are<is_digit_char>}},
        {"isdecimal", {{}, all_are<is_digit_char>}},
        {"isnumeric", {{}, all_are<is_digit_char>}},
        {"isalpha", {{}, all_are<is_letter>}},
        {"isalnum", {{}, all_are<is_letter_or_digit>}},
        {"isspace", {{}, all_are<is_white>}},
        {"isupper", {{}, all_cased<UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL>}},
        {"islower", {{}, all_cased<UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LU>}},
    };
    return methods;
}

// str.format() with {}, {0} and {name}, without format specifications.
Value brace_format(Evaluator &e, const Text &self, Arguments arguments) {
    const std::string_view bytes = self.bytes();
    e.meter().bytes(bytes.size());
    Text out;
    std::size_t next = 0;
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t mark = std::min(bytes.find_first_of("{}", at), bytes.size());
        out.append_part(self, at, mark);
        at = mark;
        if (at >= bytes.size()) break;
        if (at + 1 < bytes.size() && bytes[at + 1] == bytes[at]) {
            out.append_part(self, at, at + 1);
            at += 2;
            continue;
        }
        const std::size_t end = bytes.find('}', at);
        if (bytes[at] == '}' || end == std::string::npos)
            fail("format: a brace has no partner; write {{{{ or }}}} for a brace");
        const std::string name(bytes.substr(at + 1, end - at - 1));
        const Value *value = nullptr;
        if (name.find_first_not_of("0123456789") == std::string::npos) {
            const std::size_t index = name.empty()      ? next++
                                      : name.size() > 6 ? 1000000
                                                        : std::stoul(name);
            if (index < arguments.positional.size()) value = &arguments.positional[index];
        }
        for (const auto &named : arguments.named)
            if (named.first == name) value = &named.second;
        if (value == nullptr)
            fail("format: found {{{}}}; expected {{}}, the number or the name of an argument "
                 "(format specifications are not supported)",
                 printable(name, 60));
        out.append(e.text_of(*value));
        at = end + 1;
    }
    return e.string(std::move(out));
}

} // namespace

bool has_string_method(std::string_view name) {
    return name == "format" || string_methods().contains(name);
}

Value call_string_method(Evaluator &evaluator, const Text &self, const std::string &name,
                         Arguments arguments) {
    if (name == "format") return brace_format(evaluator, self, std::move(arguments));
    const StringMethod &method = string_methods().at(name);
    const Bound bound(fmt::format("the method {} of strings", name), method.parameters,
                      std::move(arguments));
    return method.run(evaluator, self, bound);
}

} // namespace keel::jinja
