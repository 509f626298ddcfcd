#include "config/codec.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"
#include "config/key.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/ranges.h>

namespace keel::pipeline {
namespace {

constexpr keel_dtype element_types[] = {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16,
                                        KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0};

// Returns the text of a number or a boolean. Fails for a value in quotes, because quotes make the
// value a text.
const std::string &plain_text(const Field &field) {
    const std::string &text = scalar_text(field);
    if (field.node.quoted) fail(field, describe(field.node) + "; remove the quotes");
    return text;
}

// Makes a path absolute. A relative path starts at the folder of the file that has it.
std::filesystem::path resolved(const Field &field, const std::string &text) {
    if (text.empty() || text.find('\0') != std::string::npos) fail(field, describe(field.node));
    const YamlNode &node = field.node;
    return resolve_path(node.source ? node.source->folder : std::filesystem::path{}, text);
}

std::string range_text(const Rule &rule) {
    return fmt::format("from {} to {}{}{}", number_text(rule.minimum), number_text(rule.maximum),
                       rule.word.empty() ? "" : " or ", rule.word);
}

std::vector<std::string_view> dtype_words(const Rule &rule) {
    std::vector<std::string_view> words;
    if (!rule.word.empty()) words.push_back(rule.word);
    for (const keel_dtype type : element_types) words.emplace_back(keel_dtype_name(type));
    return words;
}

// Reads the whole text as a number. Returns false if the text is not a number.
template <typename T> bool parse_number(const std::string &text, T &value) {
    const char *const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    return !text.empty() && stop == end && error == std::errc{};
}

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return is_lower(c) || (c >= 'A' && c <= 'Z'); }

bool is_plugin_name(std::string_view text) {
    return !text.empty() && text.size() <= 64 && is_lower(text[0]) &&
           std::ranges::all_of(text, [](char c) { return is_lower(c) || is_digit(c) || c == '_'; });
}

bool is_param_name(std::string_view text) {
    return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](char c) {
        return is_letter(c) || is_digit(c) || c == '_' || c == '-';
    });
}

RawParam raw_param(const Field &field, const YamlEntry &entry) {
    const YamlNode &node = entry.value;
    if (!is_param_name(entry.key)) {
        throw_at(entry.where, ErrorKind::input,
                 "expected a parameter's name (letters, digits, _) in '{}', found '{}'", field.path,
                 printable(entry.key, 60));
    }
    const auto refuse = [&](const YamlNode &value) {
        throw_at(value.where(), ErrorKind::input,
                 "expected a single value or a list of them for '{}', found {}",
                 join_path(field.path, entry.key), describe(value));
    };
    RawParam param;
    param.key = entry.key;
    param.key_where = entry.where;
    param.where = node.where();
    param.text = node.text;
    if (node.source) param.folder = node.source->folder;
    param.quoted = node.quoted;
    param.is_null = node.is_null();
    param.is_sequence = node.kind == YamlNode::Kind::sequence;
    if (node.is_map()) refuse(node);
    for (const YamlNode &item : node.items) {
        if (item.kind != YamlNode::Kind::scalar) refuse(item);
        param.items.push_back(item.text);
    }
    return param;
}

} // namespace

void fail(const Field &field, const std::string &found) {
    throw_at(field.node.where(), ErrorKind::input, "expected {} for '{}', found {}",
             field.expectation(field.rule), field.path, found);
}

const std::string &scalar_text(const Field &field) {
    if (field.node.kind != YamlNode::Kind::scalar) fail(field, describe(field.node));
    return field.node.text;
}

size_t choice_index(const Field &field, std::span<const std::string_view> words) {
    const std::string &text = scalar_text(field);
    const auto found = std::ranges::find(words, text);
    if (found == words.end()) {
        const std::vector<std::string> known(words.begin(), words.end());
        fail(field, describe(field.node) + did_you_mean(text, known));
    }
    return static_cast<size_t>(found - words.begin());
}

std::string joined(std::span<const std::string_view> words) {
    return fmt::format("{}", fmt::join(words, ", "));
}

std::string flow_list(std::span<const std::string> items) {
    std::string text;
    for (const std::string &item : items) text += (text.empty() ? "" : ", ") + yaml_scalar(item);
    return "[" + text + "]";
}

std::string number_text(double value) {
    const auto whole = static_cast<int64_t>(value);
    return value == static_cast<double>(whole) ? fmt::format("{}", whole)
                                               : fmt::format("{}", value);
}

std::string yaml_scalar(std::string_view text) {
    const auto alnum = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    };
    const auto safe = [&](char c) {
        return alnum(c) || c == '_' || c == '.' || c == '/' || c == '-' || c == '+';
    };
    const bool starts_well =
        !text.empty() && (alnum(text[0]) || text[0] == '_' || text[0] == '/' || text[0] == '.' ||
                          (text[0] == '-' && text.size() > 1 && alnum(text[1])));
    const bool is_null = text == "null" || text == "Null" || text == "NULL";
    if (starts_well && !is_null && text.find("...") == std::string_view::npos &&
        std::all_of(text.begin(), text.end(), safe))
        return std::string(text);
    std::string out = "\"";
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const auto byte = static_cast<unsigned char>(c);
        // U+0080..U+009F are the bytes C2 80..C2 9F in UTF-8
        const bool c1 =
            byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\t') {
            out += "\\t";
        } else if (byte < 0x20 || byte == 0x7F) {
            out += fmt::format("\\x{:02x}", byte);
        } else if (c1) {
            out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[++i]));
        } else {
            out += c;
        }
    }
    return out + '"';
}

void Codec<std::string>::read(const Field &field, std::string &value) {
    const std::string &text = scalar_text(field);
    if (!field.rule.is_plugin || is_plugin_name(text)) {
        value = text;
    } else if (text.find('/') != std::string::npos || text.ends_with(".so")) {
        value = resolved(field, text).string();
    } else {
        fail(field, describe(field.node));
    }
}
std::string Codec<std::string>::write(const std::string &value, const Rule &) {
    return yaml_scalar(value);
}
std::string Codec<std::string>::expectation(const Rule &rule) {
    return rule.is_plugin ? "a plugin's name (a-z, 0-9, _) or a path to a library" : "a text";
}

void Codec<std::filesystem::path>::read(const Field &field, std::filesystem::path &value) {
    value = resolved(field, scalar_text(field));
}
std::string Codec<std::filesystem::path>::write(const std::filesystem::path &value, const Rule &) {
    return yaml_scalar(value.string());
}
std::string Codec<std::filesystem::path>::expectation(const Rule &) { return "a path"; }

void Codec<int64_t>::read(const Field &field, int64_t &value) {
    const bool whole = parse_number(plain_text(field), value);
    const Rule &rule = field.rule;
    if (!whole || value < static_cast<int64_t>(rule.minimum) ||
        value > static_cast<int64_t>(rule.maximum))
        fail(field, describe(field.node));
}
std::string Codec<int64_t>::write(int64_t value, const Rule &) { return fmt::format("{}", value); }
std::string Codec<int64_t>::expectation(const Rule &rule) {
    return "an integer " + range_text(rule);
}

void Codec<double>::read(const Field &field, double &value) {
    const bool whole = parse_number(plain_text(field), value);
    const Rule &rule = field.rule;
    if (!whole || !std::isfinite(value) || value < rule.minimum || value > rule.maximum)
        fail(field, describe(field.node));
    value += 0.0; // turns negative zero into zero
}
std::string Codec<double>::write(double value, const Rule &) { return fmt::format("{}", value); }
std::string Codec<double>::expectation(const Rule &rule) { return "a number " + range_text(rule); }

void Codec<bool>::read(const Field &field, bool &value) {
    const std::string &text = plain_text(field);
    value = text == "true";
    if (!value && text != "false") fail(field, describe(field.node));
}
std::string Codec<bool>::write(bool value, const Rule &) { return value ? "true" : "false"; }
std::string Codec<bool>::expectation(const Rule &) { return "true or false"; }

void Codec<keel_dtype>::read(const Field &field, keel_dtype &value) {
    const std::vector<std::string_view> words = dtype_words(field.rule);
    const std::string_view word = words[choice_index(field, words)];
    value = KEEL_DTYPE_NONE; // the word of the rule (Rule::word) means KEEL_DTYPE_NONE
    for (const keel_dtype type : element_types) {
        if (word == keel_dtype_name(type)) value = type;
    }
}
std::string Codec<keel_dtype>::write(keel_dtype value, const Rule &rule) {
    return value == KEEL_DTYPE_NONE ? std::string(rule.word) : keel_dtype_name(value);
}
std::string Codec<keel_dtype>::expectation(const Rule &rule) {
    return "one of " + joined(dtype_words(rule));
}

void Codec<std::vector<std::string>>::read(const Field &field, std::vector<std::string> &value) {
    if (field.node.kind != YamlNode::Kind::sequence) fail(field, describe(field.node));
    for (const YamlNode &item : field.node.items) {
        const Field one = field.at(item);
        if (scalar_text(one).empty()) fail(one, "an empty text");
        value.push_back(item.text);
    }
}
std::string Codec<std::vector<std::string>>::write(const std::vector<std::string> &value,
                                                   const Rule &) {
    return flow_list(value);
}
std::string Codec<std::vector<std::string>>::expectation(const Rule &) { return "a list of texts"; }

void Codec<std::vector<double>>::read(const Field &field, std::vector<double> &value) {
    if (field.node.kind != YamlNode::Kind::sequence) fail(field, describe(field.node));
    if (field.node.items.empty()) fail(field, "an empty list");
    for (const YamlNode &item : field.node.items) {
        double number = 0;
        Codec<double>::read(field.at(item), number);
        if (!value.empty() && number >= value.back())
            fail(field.at(item), fmt::format("{} after {}", number, value.back()));
        value.push_back(number);
    }
}
std::string Codec<std::vector<double>>::write(const std::vector<double> &value, const Rule &) {
    return fmt::format("[{}]", fmt::join(value, ", "));
}
std::string Codec<std::vector<double>>::expectation(const Rule &rule) {
    return "a list of falling numbers " + range_text(rule);
}

void Codec<std::vector<RawParam>>::read(const Field &field, std::vector<RawParam> &value) {
    if (field.node.is_null()) return;
    if (!field.node.is_map()) fail(field, describe(field.node));
    for (const YamlEntry &entry : field.node.entries) value.push_back(raw_param(field, entry));
}
std::string Codec<std::vector<RawParam>>::expectation(const Rule &) {
    return "a map of parameters";
}

std::string param_text(const RawParam &param) {
    if (param.is_null) return "null";
    return param.is_sequence ? flow_list(param.items) : yaml_scalar(param.text);
}

} // namespace keel::pipeline
