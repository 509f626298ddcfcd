#include "config/yaml_reader.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace keel::yaml {

using pipeline::describe;
using pipeline::YamlEntry;
using pipeline::YamlNode;

namespace {

// Returns the text of a number or a boolean. Fails for a word in quotes, because quotes make the
// value a text.
const std::string &plain(const YamlNode &node, std::string_view what) {
    if (node.kind != YamlNode::Kind::scalar)
        fail(node.where(), fmt::format("expected {}, found {}", what, describe(node)));
    if (node.quoted)
        fail(node.where(),
             fmt::format("expected {}, found {}; remove the quotes", what, describe(node)));
    return node.text;
}

} // namespace

void fail(const SourceLocation &where, const std::string &what) {
    throw_at(where, ErrorKind::input, "{}", what);
}

void check_keys(const YamlNode &map, std::string_view in, const std::vector<std::string> &known) {
    for (const YamlEntry &entry : map.entries) {
        if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
        std::string end = did_you_mean(entry.key, known);
        if (end.empty()) end = fmt::format("; known keys: {}", fmt::join(known, ", "));
        fail(entry.where,
             fmt::format("unknown key '{}' in {}{}", printable(entry.key, 60), in, end));
    }
}

const YamlEntry &required(const YamlNode &map, std::string_view key, std::string_view in,
                          std::string_view example) {
    const YamlEntry *entry = map.find(key);
    if (entry != nullptr && !entry->value.is_null()) return *entry;
    std::vector<std::string> found;
    for (const YamlEntry &other : map.entries) found.push_back(other.key);
    const YamlEntry *near = map.find(nearest_word(key, found));
    if (entry == nullptr && near != nullptr)
        fail(near->where, fmt::format("unknown key '{}' in {}; did you mean '{}'?",
                                      printable(near->key, 60), in, key));
    fail(map.where(), fmt::format("expected the key '{}' in {}, found none; for example '{}'", key,
                                  in, example));
}

const std::string &scalar(const YamlNode &node, std::string_view what) {
    if (node.kind != YamlNode::Kind::scalar || node.text.empty())
        fail(node.where(), fmt::format("expected {}, found {}", what, describe(node)));
    return node.text;
}

int64_t integer(const YamlNode &node, std::string_view what, int64_t low, int64_t high) {
    const std::string &text = plain(node, what);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high)
        fail(node.where(),
             fmt::format("expected {} from {} to {}, found {}", what, low, high, describe(node)));
    return value;
}

double number(const YamlNode &node, std::string_view what, double low, double high) {
    const std::string &text = plain(node, what);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) ||
        value < low || value > high)
        fail(node.where(),
             fmt::format("expected {} from {} to {}, found {}", what, low, high, describe(node)));
    return value + 0.0; // turns negative zero into zero
}

bool boolean(const YamlNode &node, std::string_view what) {
    const std::string &text = plain(node, what);
    if (text != "true" && text != "false")
        fail(node.where(),
             fmt::format("expected true or false for '{}', found {}", what, describe(node)));
    return text == "true";
}

size_t choice(const YamlNode &node, std::string_view what,
              std::initializer_list<std::string_view> words) {
    const std::string &text = scalar(node, what);
    const auto *const found = std::find(words.begin(), words.end(), text);
    if (found == words.end()) {
        const std::vector<std::string> known(words.begin(), words.end());
        fail(node.where(), fmt::format("expected {} ({}), found {}{}", what, fmt::join(known, ", "),
                                       describe(node), did_you_mean(text, known)));
    }
    return static_cast<size_t>(found - words.begin());
}

std::filesystem::path path(const YamlNode &node) {
    const std::string &text = scalar(node, "a path");
    if (text.find('\0') != std::string::npos)
        fail(node.where(), fmt::format("expected a path, found {}", describe(node)));
    return resolve_path(node.source ? node.source->folder : std::filesystem::path{}, text);
}

std::vector<const YamlNode *> items(const YamlNode &node, std::string_view key, size_t most) {
    std::vector<const YamlNode *> out;
    if (node.kind == YamlNode::Kind::sequence) {
        for (const YamlNode &item : node.items) out.push_back(&item);
    } else if (!node.is_null()) {
        out.push_back(&node);
    }
    if (out.empty())
        fail(node.where(),
             fmt::format("expected a list for '{}' with at least one entry, found nothing", key));
    if (out.size() > most)
        fail(node.where(),
             fmt::format("expected at most {} entries for '{}', found {}", most, key, out.size()));
    return out;
}

} // namespace keel::yaml
