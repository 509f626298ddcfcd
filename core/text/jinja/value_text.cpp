// How values are written: str(), repr() and json.dumps() of Python.
#include "text/jinja/value.hpp"

#include "text/utf8.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace keel::jinja {
namespace {

// Python's repr() of a string. Characters that Python escapes because they cannot be printed are
// only recognized in ASCII and Latin-1.
void write_quoted(Text &out, const Text &text) {
    const bool has_single = text.bytes().find('\'') != std::string::npos;
    const char quote = has_single && text.bytes().find('"') == std::string::npos ? '"' : '\'';
    out.append(std::string_view(&quote, 1), false);
    text.each_run([&](std::string_view run, bool is_data) {
        std::string escaped;
        for (std::size_t at = 0; at < run.size();) {
            const std::size_t from = at;
            const char32_t c = next_code_point(run, at);
            switch (c) {
            case '\n': escaped += "\\n"; break;
            case '\r': escaped += "\\r"; break;
            case '\t': escaped += "\\t"; break;
            case '\\': escaped += "\\\\"; break;
            default:
                if (c == static_cast<unsigned char>(quote))
                    escaped += std::string("\\") + quote;
                else if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD)
                    escaped += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
                else
                    escaped += run.substr(from, at - from);
            }
        }
        out.append(escaped, is_data);
    });
    out.append(std::string_view(&quote, 1), false);
}

void write_json_string(Text &out, const Text &text, bool ensure_ascii) {
    out.append("\"", false);
    text.each_run([&](std::string_view run, bool is_data) {
        std::string escaped;
        for (std::size_t at = 0; at < run.size();) {
            const std::size_t from = at;
            const char32_t c = next_code_point(run, at);
            const auto unit = [&](unsigned code) { escaped += fmt::format("\\u{:04x}", code); };
            switch (c) {
            case '"': escaped += "\\\""; break;
            case '\\': escaped += "\\\\"; break;
            case '\n': escaped += "\\n"; break;
            case '\r': escaped += "\\r"; break;
            case '\t': escaped += "\\t"; break;
            case '\b': escaped += "\\b"; break;
            case '\f': escaped += "\\f"; break;
            default:
                if (c < 0x20 || (ensure_ascii && c > 0x7E && c < 0x10000)) {
                    unit(static_cast<unsigned>(c));
                } else if (ensure_ascii && c >= 0x10000) {
                    unit(static_cast<unsigned>(0xD800 + ((c - 0x10000) >> 10)));
                    unit(static_cast<unsigned>(0xDC00 + ((c - 0x10000) & 0x3FF)));
                } else {
                    escaped += run.substr(from, at - from);
                }
            }
        }
        out.append(escaped, is_data);
    });
    out.append("\"", false);
}

// Writes a value, and counts its work. The depth of values is limited, so recursion is too.
class Writer {
  public:
    explicit Writer(Meter &meter) : meter_(meter) {}

    void repr(const Value &value) {
        count(value);
        switch (value.kind()) {
        case Kind::string: return write_quoted(out, value.text());
        case Kind::list: {
            const List &list = value.list();
            if (list.form == ListForm::generator)
                fail("the result of a filter cannot be written; convert it with the filter list "
                     "first");
            const bool is_tuple = list.form == ListForm::tuple;
            put(is_tuple ? "(" : "[");
            for (std::size_t i = 0; i < list.items.size(); ++i) {
                if (i > 0) put(", ");
                repr(list.items[i]);
            }
            return put(!is_tuple ? "]" : list.items.size() == 1 ? ",)" : ")");
        }
        case Kind::dict: {
            put("{");
            bool is_first = true;
            for (const auto &member : value.dict().members) {
                if (!is_first) put(", ");
                is_first = false;
                repr(member.first);
                put(": ");
                repr(member.second);
            }
            return put("}");
        }
        case Kind::undefined: return put("Undefined");
        default: plain(value);
        }
    }

    void plain(const Value &value) {
        switch (value.kind()) {
        case Kind::undefined: return;
        case Kind::none: return put("None");
        case Kind::boolean: return put(value.flag() ? "True" : "False");
        case Kind::integer: return put(std::to_string(value.integer()));
        case Kind::real: return put(number_text(value.real()));
        case Kind::string: out.append(value.text()); return;
        case Kind::list:
        case Kind::dict: return repr(value);
        default: fail("cannot write {}", type_name(value));
        }
    }

    void json(const Value &value, const JsonStyle &style, std::size_t level) {
        count(value);
        switch (value.kind()) {
        case Kind::none: return put("null");
        case Kind::boolean: return put(value.flag() ? "true" : "false");
        case Kind::real:
            if (std::isnan(value.real())) return put("NaN");
            if (std::isinf(value.real())) return put(value.real() > 0 ? "Infinity" : "-Infinity");
            return plain(value);
        case Kind::integer: return plain(value);
        case Kind::string: return write_json_string(out, value.text(), style.ensure_ascii);
        case Kind::list:
            if (value.list().form != ListForm::generator)
                return json_list(value.list(), style, level);
            break;
        case Kind::dict: return json_dict(value.dict(), style, level);
        case Kind::undefined: fail("tojson: {}", value.reason());
        default: break;
        }
        fail("tojson: expected none, a boolean, a number, a string, a list or a dict, found {}",
             type_name(value));
    }

    Text out;

  private:
    void put(std::string_view text) { out.append(text, false); }
    void count(const Value &value) {
        meter_.steps(1);
        meter_.bytes(value.is(Kind::string) ? 6 * value.bytes().size() + 8 : 16);
    }
    void new_line(const JsonStyle &style, std::size_t level) {
        if (!style.has_indent) return;
        meter_.bytes(style.indent.size() * level + 1);
        put("\n");
        for (std::size_t i = 0; i < level; ++i) put(style.indent);
    }
    void json_list(const List &list, const JsonStyle &style, std::size_t level) {
        if (list.items.empty()) return put("[]");
        put("[");
        for (std::size_t i = 0; i < list.items.size(); ++i) {
            if (i > 0) separator(style);
            new_line(style, level + 1);
            json(list.items[i], style, level + 1);
        }
        new_line(style, level);
        put("]");
    }
    void json_dict(const Dict &dict, const JsonStyle &style, std::size_t level) {
        if (dict.members.empty()) return put("{}");
        std::vector<const std::pair<Value, Value> *> members;
        for (const auto &member : dict.members) members.push_back(&member);
        if (style.sort_keys)
            std::stable_sort(members.begin(), members.end(), [&](const auto *a, const auto *b) {
                return compare(a->first, b->first, meter_) < 0;
            });
        put("{");
        for (std::size_t i = 0; i < members.size(); ++i) {
            if (i > 0) separator(style);
            new_line(style, level + 1);
            const Value &key = members[i]->first;
            if (key.is(Kind::string)) {
                json(key, style, level + 1);
            } else {
                put("\"");
                json(key, style, level + 1);
                put("\"");
            }
            meter_.bytes(style.colon.size());
            put(style.colon);
            json(members[i]->second, style, level + 1);
        }
        new_line(style, level);
        put("}");
    }
    void separator(const JsonStyle &style) {
        meter_.bytes(style.comma.size());
        put(style.comma);
    }

    Meter &meter_;
};

} // namespace

std::string number_text(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    std::array<char, 64> buffer{};
    // the shortest digits that give the same number, in scientific form: d.ddde+XX
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                   std::chars_format::scientific);
    const std::string_view digits(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
    const std::size_t mark = digits.find('e');
    int exponent = 0;
    const std::string_view power = digits.substr(mark + 1);
    std::from_chars(power.data() + (power[0] == '+' ? 1 : 0), power.data() + power.size(),
                    exponent);
    if (exponent < -4 || exponent >= 16) return std::string(digits);
    const auto fixed = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                     std::chars_format::fixed);
    std::string text(buffer.data(), fixed.ptr);
    if (text.find('.') == std::string::npos) text += ".0";
    return text;
}

Text to_text(const Value &value, Meter &meter) {
    if (value.is(Kind::string)) {
        meter.bytes(value.bytes().size());
        return value.text();
    }
    Writer writer(meter);
    writer.plain(value);
    return std::move(writer.out);
}

Text to_repr(const Value &value, Meter &meter) {
    Writer writer(meter);
    writer.repr(value);
    return std::move(writer.out);
}

Text to_json(const Value &value, const JsonStyle &style, Meter &meter) {
    Writer writer(meter);
    writer.json(value, style, 0);
    return std::move(writer.out);
}

} // namespace keel::jinja
