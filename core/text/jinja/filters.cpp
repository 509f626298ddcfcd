// The filters for single values, and the table of all filters.
#include "text/jinja/filters.hpp"

#include "base/display.hpp"
#include "base/suggest.hpp"
#include "text/jinja/string_methods.hpp"
#include "text/utf8.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/ranges.h>

namespace keel::jinja {
namespace {

template <Text (*change)(const Text &, Meter &)>
Value changed_text(Evaluator &e, const Value &in, const Bound &) {
    return e.string(change(e.text_of(in), e.meter()));
}

// Jinja's filter title: each word begins with an upper case letter. Words end at white space and at
// - ( { [ <
Value title(Evaluator &e, const Value &in, const Bound &) {
    const Text text = e.text_of(in);
    Text out;
    std::size_t from = 0;
    const auto add_word = [&](std::size_t to) {
        if (from < to) out.append(to_capitalized(text.part(from, to), e.meter()));
    };
    for (std::size_t at = 0; at < text.size();) {
        std::size_t next = at;
        const char32_t c = next_code_point(text.bytes(), next);
        const bool ends =
            is_unicode_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
        if (ends) {
            add_word(at);
            out.append_part(text, at, next);
            from = next;
        }
        at = next;
    }
    add_word(text.size());
    return e.string(std::move(out));
}

Value trim(Evaluator &e, const Value &in, const Bound &a) {
    std::optional<Text> chars;
    if (a[0] != nullptr && !a[0]->is(Kind::none)) chars = a.needed_text(0);
    return e.string(strip(e.text_of(in), Ends::both, chars, e.meter()));
}

Value replace_filter(Evaluator &e, const Value &in, const Bound &a) {
    return e.string(replace(e.text_of(in), e.text_of(a.needed(0)), e.text_of(a.needed(1)),
                            a.integer(2, -1), e.meter()));
}

Value default_filter(Evaluator &e, const Value &in, const Bound &a) {
    const bool is_missing = in.is(Kind::undefined) || (a.flag(1, false) && !truth(in));
    if (!is_missing) return in;
    return a[0] != nullptr ? *a[0] : e.string(Text());
}

Value to_string(Evaluator &e, const Value &in, const Bound &) {
    return in.is(Kind::string) ? in : e.string(e.text_of(in));
}

Value safe(Evaluator &e, const Value &in, const Bound &) {
    return Value::safe_string(e.text_of(in));
}

std::optional<double> parse_real(const Text &given, Meter &meter) {
    const Text text = strip(given, Ends::both, {}, meter);
    std::string_view bytes = text.bytes();
    if (bytes.starts_with('+')) bytes.remove_prefix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), value);
    if (error != std::errc() || end != bytes.data() + bytes.size()) return std::nullopt;
    return value;
}

Value to_integer(Evaluator &e, const Value &in, const Bound &a) {
    const auto otherwise = [&] { return a[0] != nullptr ? *a[0] : Value::integer(0); };
    if (in.is(Kind::undefined)) fail("{}", in.reason());
    std::optional<double> number;
    if (in.is(Kind::integer) || in.is(Kind::boolean)) return Value::integer(in.integer());
    if (in.is(Kind::real)) number = in.real();
    if (in.is(Kind::string)) {
        const std::int64_t base = a.integer(1, 10);
        if (base < 2 || base > 36)
            fail("the filter int: expected a base of 2 to 36, found {}", base);
        const Text text = strip(in.text(), Ends::both, {}, e.meter());
        std::string_view bytes = text.bytes();
        if (bytes.starts_with('+')) bytes.remove_prefix(1);
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), value,
                                                  static_cast<int>(base));
        if (error == std::errc() && end == bytes.data() + bytes.size())
            return Value::integer(value);
        number = parse_real(in.text(), e.meter());
    }
    if (!number || !std::isfinite(*number)) return otherwise();
    if (std::abs(*number) >= 9.2e18) fail("the filter int: the number does not fit in 64 bits");
    return Value::integer(static_cast<std::int64_t>(*number));
}

Value to_real(Evaluator &e, const Value &in, const Bound &a) {
    if (in.is(Kind::undefined)) fail("{}", in.reason());
    if (in.is_number()) return Value::real(in.real());
    if (in.is(Kind::string))
        if (const auto value = parse_real(in.text(), e.meter())) return Value::real(*value);
    return a[0] != nullptr ? *a[0] : Value::real(0);
}

Value absolute(Evaluator &e, const Value &in, const Bound &) {
    if (in.is(Kind::undefined)) fail("{}", in.reason());
    if (!in.is_number()) fail("the filter abs: expected a number, found {}", type_name(in));
    if (in.is(Kind::real)) return Value::real(std::abs(in.real()));
    return in.integer() < 0 ? binary(e, Op::subtract, Value::integer(0), in)
                            : Value::integer(in.integer());
}

Value round_filter(Evaluator &, const Value &in, const Bound &a) {
    if (in.is(Kind::undefined)) fail("{}", in.reason());
    if (!in.is_number()) fail("the filter round: expected a number, found {}", type_name(in));
    const std::int64_t precision = a.integer(0, 0);
    const std::string method = a.text(1, "common").bytes();
    if (precision < 0 || precision > 300)
        fail("the filter round: expected a precision of 0 to 300, found {}", precision);
    if (method == "common") {
        if (!in.is(Kind::real)) return Value::integer(in.integer());
        if (!std::isfinite(in.real())) return in;
        const std::string digits = fmt::format("{:.{}f}", in.real(), precision);
        double value = 0;
        std::from_chars(digits.data(), digits.data() + digits.size(), value);
        return Value::real(value);
    }
    if (method != "ceil" && method != "floor")
        fail("the filter round: expected the method common, ceil or floor, found {}",
             quote_text(method));
    const double factor = std::pow(10.0, static_cast<double>(precision));
    const double scaled = in.real() * factor;
    return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / factor);
}

Value indent(Evaluator &e, const Value &in, const Bound &a) {
    Text width;
    if (a[0] != nullptr && a[0]->is(Kind::string)) {
        width = a[0]->text();
    } else {
        const std::int64_t columns = a.integer(0, 4);
        if (columns > 1000)
            fail("the filter indent: expected at most 1000 columns, found {}", columns);
        width.append(std::string(static_cast<std::size_t>(std::max<std::int64_t>(columns, 0)), ' '),
                     false);
    }
    Text text = e.text_of(in);
    text.append("\n", false);
    const std::vector<Text> lines = split_lines(text, false, e.meter());
    const bool indents_blank = a.flag(2, false);
    Text out;
    if (a.flag(1, false)) out.append(width);
    for (std::size_t i = 0; i < lines.size(); ++i) {
        e.meter().bytes(width.size() + lines[i].size() + 1);
        if (i > 0) {
            out.append("\n", false);
            if (indents_blank || !lines[i].empty()) out.append(width);
        }
        out.append(lines[i]);
    }
    return e.string(std::move(out));
}

Value tojson(Evaluator &e, const Value &in, const Bound &a) {
    JsonStyle style;
    style.ensure_ascii = a.flag(0, false);
    style.sort_keys = a.flag(3, false);
    if (a[1] != nullptr && !a[1]->is(Kind::none)) {
        style.has_indent = true;
        style.comma = ",";
        if (a[1]->is(Kind::string)) {
            style.indent = a[1]->bytes();
        } else {
            const std::int64_t columns = a.integer(1, 0);
            if (columns > 1000)
                fail("the filter tojson: expected an indent of at most 1000, found {}", columns);
            style.indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(columns, 0)), ' ');
        }
    }
    if (a[2] != nullptr && !a[2]->is(Kind::none)) {
        const std::vector<Value> parts = elements(*a[2], e.meter());
        if (parts.size() != 2 || !parts[0].is(Kind::string) || !parts[1].is(Kind::string))
            fail("the filter tojson: expected two strings for separators");
        style.comma = parts[0].bytes();
        style.colon = parts[1].bytes();
    }
    return e.string(to_json(in, style, e.meter()));
}

Value format_filter(Evaluator &e, const Value &in, Arguments &arguments) {
    if (!arguments.named.empty()) fail("the filter format: names of arguments are not supported");
    return percent_format(e, e.text_of(in),
                          e.list(std::move(arguments.positional), ListForm::tuple));
}

Value get_attribute(Evaluator &e, const Value &in, const Bound &a) {
    const std::string name = a.needed_text(0).bytes();
    if (in.is(Kind::dict) && !has_method(in, name)) // the keys of a dict are no attributes
        return Value::undefined(fmt::format("a dict has no attribute '{}'", printable(name, 60)));
    return e.attribute(in, name);
}

} // namespace

const FilterTable &value_filters() {
    static const FilterTable filters{
        {"abs", {{}, absolute}},
        {"attr", {{"name"}, get_attribute}},
        {"capitalize", {{}, changed_text<to_capitalized>}},
        {"d", {{"default_value", "boolean"}, default_filter}},
        {"default", {{"default_value", "boolean"}, default_filter}},
        {"float", {{"default"}, to_real}},
        {"indent", {{"width", "first", "blank"}, indent}},
        {"int", {{"default", "base"}, to_integer}},
        {"lower", {{}, changed_text<to_lower>}},
        {"replace", {{"old", "new", "count"}, replace_filter}},
        {"round", {{"precision", "method"}, round_filter}},
        {"safe", {{}, safe}},
        {"string", {{}, to_string}},
        {"title", {{}, title}},
        {"tojson", {{"ensure_ascii", "indent", "separators", "sort_keys"}, tojson}},
        {"trim", {{"chars"}, trim}},
        {"upper", {{}, changed_text<to_upper>}},
    };
    return filters;
}

const OpenFilterTable &open_filters() {
    static const OpenFilterTable filters = [] {
        OpenFilterTable all = list_open_filters();
        all.emplace("format", format_filter);
        return all;
    }();
    return filters;
}

Value call_filter(Evaluator &evaluator, const std::string &name, const Value &input,
                  Arguments arguments) {
    evaluator.meter().steps(1);
    for (const FilterTable *table : {&value_filters(), &list_filters()}) {
        const auto found = table->find(name);
        if (found == table->end()) continue;
        const Bound bound("the filter " + name, found->second.parameters, std::move(arguments));
        return found->second.run(evaluator, input, bound);
    }
    if (const auto found = open_filters().find(name); found != open_filters().end())
        return found->second(evaluator, input, arguments);
    std::vector<std::string> names;
    for (const FilterTable *table : {&value_filters(), &list_filters()})
        for (const auto &filter : *table) names.emplace_back(filter.first);
    for (const auto &filter : open_filters()) names.emplace_back(filter.first);
    std::sort(names.begin(), names.end());
    fail("unknown filter {}{}; the filters are {}", quote_text(name), did_you_mean(name, names),
         fmt::join(names, ", "));
}

} // namespace keel::jinja
