#pragma once

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/json_writer.hpp"
#include "eval/ab/records/record.hpp"

// Limits and helper functions for the fields of headers and records.
namespace keel::ab::fields {

inline constexpr size_t most_arms = 1000, most_contrasts = 100'000, most_facts = 1000;
inline constexpr size_t most_points = 100'000, most_values = 100'000;
inline constexpr uint32_t most_layers = 1024, most_heads = 1024, most_shards = 1'000'000,
                          most_batch = 65536;
inline constexpr uint64_t most_bins = 1'000'000, most_count = uint64_t{1} << 62;
inline constexpr double largest_number = 1e300;
inline constexpr JsonLimits limits{most_line_bytes, 8, 1'100'000};

// Returns the text of a field, or an empty text if the field is missing.
inline std::string text_or_none(const JsonNode &node, const char *key, size_t longest) {
    const auto value = node.find(key);
    return value ? value->text(longest) : std::string();
}
inline std::string name_or_none(const JsonNode &node, const char *key) {
    return text_or_none(node, key, longest_name);
}
inline const std::string &needed_text(const JsonNode &node, const char *key, size_t longest) {
    const std::string &found = node.at(key).text(longest);
    if (found.empty()) node.fail(key, "expected a text, found an empty text");
    return found;
}
inline const std::string &needed_name(const JsonNode &node, const char *key) {
    return needed_text(node, key, longest_name);
}
// Returns the integer of a field, or `otherwise` if the field is missing.
inline uint64_t count(const JsonNode &node, const char *key, uint64_t otherwise = 0,
                      uint64_t low = 0, uint64_t high = most_count) {
    const auto value = node.find(key);
    return value ? value->natural(low, high) : otherwise;
}
inline double number(const JsonNode &node, const char *key, double otherwise, double low,
                     double high) {
    const auto value = node.find(key);
    return value ? value->number(low, high) : otherwise;
}

inline std::vector<std::pair<std::string, std::string>>
read_pairs(const JsonNode &node, const char *key, size_t most, size_t longest) {
    std::vector<std::pair<std::string, std::string>> out;
    const auto list = node.find(key);
    for (size_t i = 0; list && i < list->size(most); ++i) {
        const JsonNode pair = list->element(i);
        if (pair.size() != 2) pair.expected("a pair of texts");
        out.emplace_back(pair.element(0).text(longest_name), pair.element(1).text(longest));
    }
    return out;
}

inline const std::string &checked_name(const std::string &name, const char *what, bool needed) {
    if (name.size() > longest_name)
        throw_error(ErrorKind::usage, "the {} of a result has {} bytes; expected at most {}: '{}'",
                    what, name.size(), longest_name, printable(name, 60));
    if (needed && name.empty())
        throw_error(ErrorKind::usage, "a result has no {}; expected a name", what);
    return name;
}

// Shortens a text to at most `longest` bytes. Never cuts inside a UTF-8 character.
inline std::string cut(const std::string &text, size_t longest) {
    if (text.size() <= longest) return text;
    size_t end = longest;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    return text.substr(0, end);
}

inline void write_pair(JsonWriter &json, const std::string &name, const std::string &text) {
    json.begin_array().value(name).value(text).end_array();
}

inline std::string line_of(JsonWriter &json) {
    std::string line = json.take();
    if (line.size() > most_line_bytes)
        throw_error(ErrorKind::usage, "a record has {} bytes; expected at most {}", line.size(),
                    most_line_bytes);
    return line;
}

} // namespace keel::ab::fields
