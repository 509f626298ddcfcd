#include "config/read_value.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace keel::pipeline {
namespace {

void expand(YamlNode &node, std::string_view path) {
    const SectionSpec *section = find_section(path);
    if (section == nullptr) return;
    if (node.kind == YamlNode::Kind::scalar || node.kind == YamlNode::Kind::sequence) {
        if (section->shorthand.empty()) return;
        YamlNode map;
        map.kind = YamlNode::Kind::map;
        map.source = node.source;
        map.line = node.line;
        map.column = node.column;
        map.entries.push_back({std::string(section->shorthand), node.where(), std::move(node)});
        node = std::move(map);
    }
    for (YamlEntry &entry : node.entries) {
        if (!entry.key.empty() && entry.key.find('.') == std::string::npos)
            expand(entry.value, join_path(path, entry.key));
    }
}

using Values = std::map<std::string, const YamlEntry *, std::less<>>;

[[noreturn]] void refuse_unknown(const YamlEntry &entry, std::string_view section) {
    const std::string key = printable(entry.key, 60);
    const std::string end = entry.key.find('.') == std::string::npos || find_key(entry.key) == nullptr
                                ? key_suggestion(section, entry.key)
                                : "; write one map inside the other, as 'policy: {plugin: none}'";
    throw_error(ErrorKind::input, "{}: unknown key '{}' in {}{}", to_string(entry.where), key,
                section.empty() ? "a pipeline" : fmt::format("'{}'", section), end);
}

void collect(const YamlNode &node, const std::string &section, Values &values) {
    if (node.is_null()) return; // a section whose keys are all commented out
    if (!node.is_map())
        throw_error(ErrorKind::input, "{}: expected a map of keys for {}, found {}", to_string(node.where()),
                    section.empty() ? "a pipeline" : fmt::format("'{}'", section), describe(node));
    for (const YamlEntry &entry : node.entries) {
        // a dotted or empty key would be taken for another section's
        if (entry.key.empty() || entry.key.find('.') != std::string::npos) refuse_unknown(entry, section);
        const std::string path = join_path(section, entry.key);
        if (find_section(path) != nullptr) {
            collect(entry.value, path, values);
        } else if (find_key(path) == nullptr) {
            refuse_unknown(entry, section);
        } else {
            values.emplace(path, &entry);
        }
    }
}

const std::string &scalar_text(const Field &field) {
    if (field.node.kind != YamlNode::Kind::scalar) fail(field, describe(field.node));
    return field.node.text;
}

// Numbers, booleans: a word in quotes is a text.
const std::string &plain_text(const Field &field) {
    const std::string &text = scalar_text(field);
    if (field.node.quoted) fail(field, describe(field.node) + "; remove the quotes");
    return text;
}

size_t choice_index(const Field &field) {
    const std::string &text = scalar_text(field);
    const auto &choices = field.key.choices;
    const auto found = std::find(choices.begin(), choices.end(), text);
    if (found == choices.end()) {
        const std::vector<std::string> words(choices.begin(), choices.end());
        fail(field, describe(field.node) + did_you_mean(text, words));
    }
    return static_cast<size_t>(found - choices.begin());
}

// Relative to where it is written. What is written nowhere (a default) is never a path.
std::filesystem::path resolved(const Field &field, const std::string &text) {
    if (text.empty() || text.find('\0') != std::string::npos) fail(field, describe(field.node));
    return resolve_path(field.node.source ? field.node.source->folder : std::filesystem::path{}, text);
}

bool is_plugin_name(std::string_view text) {
    const auto lower = [](char c) { return c >= 'a' && c <= 'z'; };
    return !text.empty() && text.size() <= 64 && lower(text[0]) &&
           std::all_of(text.begin(), text.end(),
                       [&](char c) { return lower(c) || (c >= '0' && c <= '9') || c == '_'; });
}

bool is_param_name(std::string_view text) {
    return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
               c == '-';
    });
}

RawParam raw_param(const Field &field, const YamlEntry &entry) {
    const YamlNode &node = entry.value;
    if (!is_param_name(entry.key)) {
        throw_error(ErrorKind::input,
                    "{}: expected a parameter's name (letters, digits, _) in '{}', found '{}'",
                    to_string(entry.where), field.key.path, printable(entry.key, 60));
    }
    const std::string path = join_path(field.key.path, entry.key);
    const auto refuse = [&](const YamlNode &value) {
        throw_error(ErrorKind::input, "{}: expected a single value or a list of them for '{}', found {}",
                    to_string(value.where()), path, describe(value));
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

void expand_shorthands(YamlNode &root) {
    expand(root, "");
}

Values collect_values(const YamlNode &root) {
    Values values;
    collect(root, "", values);
    return values;
}

void fail(const Field &field, const std::string &found) {
    throw_error(ErrorKind::input, "{}: expected {} for '{}', found {}", to_string(field.node.where()),
                expectation(field.key), field.key.path, found);
}

void decode(const Field &field, std::string &value) {
    const std::string &text = scalar_text(field);
    if (field.key.type != KeyType::plugin) {
        value = text;
    } else if (text.find('/') != std::string::npos || text.ends_with(".so")) {
        value = resolved(field, text).string();
    } else if (is_plugin_name(text)) {
        value = text;
    } else {
        fail(field, describe(field.node));
    }
}

void decode(const Field &field, std::filesystem::path &value) {
    value = resolved(field, scalar_text(field));
}

void decode(const Field &field, int64_t &value) {
    const std::string &text = plain_text(field);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = end == text.data() + text.size() && !text.empty();
    if (!whole || error != std::errc{} || value < static_cast<int64_t>(field.key.minimum) ||
        value > static_cast<int64_t>(field.key.maximum))
        fail(field, describe(field.node));
}

void decode(const Field &field, double &value) {
    const std::string &text = plain_text(field);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = end == text.data() + text.size() && !text.empty();
    if (!whole || error != std::errc{} || !std::isfinite(value) || value < field.key.minimum ||
        value > field.key.maximum)
        fail(field, describe(field.node));
    value += 0.0; // no negative zero
}

void decode(const Field &field, bool &value) {
    const std::string &text = plain_text(field);
    value = text == "true";
    if (!value && text != "false") fail(field, describe(field.node));
}

void decode(const Field &field, keel_dtype &value) {
    const std::string_view word = field.key.choices[choice_index(field)];
    value = KEEL_DTYPE_NONE; // "stored"
    for (const keel_dtype type :
         {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
        if (word == keel_dtype_name(type)) value = type;
    }
}

void decode(const Field &field, PositionMode &value) {
    value = static_cast<PositionMode>(choice_index(field));
}
void decode(const Field &field, SyncStrategy &value) {
    value = static_cast<SyncStrategy>(choice_index(field));
}

void decode(const Field &field, StepReplay &value) {
    value = static_cast<StepReplay>(choice_index(field));
}

void decode(const Field &field, StepAhead &value) {
    value = static_cast<StepAhead>(choice_index(field));
}

namespace {

template <typename Choice>
void decode_choices(const Field &field, std::vector<Choice> &value) {
    if (field.node.kind != YamlNode::Kind::sequence) {
        // one word is a list of one
        value = {static_cast<Choice>(choice_index(field))};
        return;
    }
    for (const YamlNode &item : field.node.items) {
        const auto choice = static_cast<Choice>(choice_index({field.key, item}));
        if (std::find(value.begin(), value.end(), choice) != value.end())
            fail({field.key, item}, describe(item) + " twice");
        value.push_back(choice);
    }
}

} // namespace

void decode(const Field &field, std::vector<Trigger> &value) {
    decode_choices(field, value);
}
void decode(const Field &field, std::vector<SwitchTrigger> &value) {
    decode_choices(field, value);
}

void decode(const Field &field, std::vector<std::string> &value) {
    if (field.node.kind != YamlNode::Kind::sequence) fail(field, describe(field.node));
    for (const YamlNode &item : field.node.items) {
        const Field one{field.key, item};
        if (scalar_text(one).empty()) fail(one, "an empty text");
        value.push_back(item.text);
    }
}

void decode(const Field &field, std::vector<double> &value) {
    if (field.node.kind != YamlNode::Kind::sequence) fail(field, describe(field.node));
    if (field.node.items.empty()) fail(field, "an empty list");
    for (const YamlNode &item : field.node.items) {
        double number = 0;
        decode(Field{field.key, item}, number);
        if (!value.empty() && number >= value.back())
            fail(Field{field.key, item}, fmt::format("{} behind {}", number, value.back()));
        value.push_back(number);
    }
}

void decode(const Field &field, std::vector<Span> &value) {
    if (field.node.kind != YamlNode::Kind::sequence) fail(field, describe(field.node));
    for (const YamlNode &item : field.node.items) {
        const Field pair{field.key, item};
        if (item.kind != YamlNode::Kind::sequence) fail(pair, describe(item));
        if (item.items.size() != 2) fail(pair, fmt::format("a list of {}", item.items.size()));
        Span span;
        decode(Field{field.key, item.items[0]}, span.from);
        decode(Field{field.key, item.items[1]}, span.to);
        if (span.from >= span.to) fail(pair, fmt::format("[{}, {}]", span.from, span.to));
        value.push_back(span);
    }
}

void decode(const Field &field, std::vector<RawParam> &value) {
    if (field.node.is_null()) return;
    if (!field.node.is_map()) fail(field, describe(field.node));
    for (const YamlEntry &entry : field.node.entries)
        value.push_back(raw_param(field, entry));
}

} // namespace keel::pipeline
