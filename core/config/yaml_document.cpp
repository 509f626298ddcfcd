#include "config/yaml_document.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "config/yaml_builder.hpp"
#include "config/yaml_text.hpp"
#include "platform/paths.hpp"

#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>

namespace keel::pipeline {

SourceLocation YamlNode::where() const {
    if (!source) return {};
    if (source->is_override) return {source->name, 0, 0};
    return {source->name, line, column};
}

const YamlEntry *YamlNode::find(std::string_view key) const noexcept {
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const YamlEntry &e) { return e.key == key; });
    return found == entries.end() ? nullptr : &*found;
}

YamlEntry *YamlNode::find(std::string_view key) noexcept {
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const YamlEntry &e) { return e.key == key; });
    return found == entries.end() ? nullptr : &*found;
}

bool YamlNode::erase(std::string_view key) {
    return std::erase_if(entries, [&](const YamlEntry &e) { return e.key == key; }) > 0;
}

std::string describe(const YamlNode &node) {
    switch (node.kind) {
    case YamlNode::Kind::null: return "nothing";
    case YamlNode::Kind::sequence: return "a list";
    case YamlNode::Kind::map: return "a map";
    case YamlNode::Kind::scalar: break;
    }
    return fmt::format("'{}'{}", printable(node.text, 60), node.quoted ? " in quotes" : "");
}

namespace {

// Returns a clearer message for a common error, in place of yaml-cpp's message `message`. `line` is
// the text of the line with the error.
std::string explain(const std::string &message, std::string_view line) {
    const std::string_view indentation = line.substr(0, line.find_first_not_of(" \t"));
    if (indentation.find('\t') != std::string_view::npos ||
        message == YAML::ErrorMsg::TAB_IN_INDENTATION)
        return "expected spaces for the indentation, found a tab";
    if (message == YAML::ErrorMsg::UNKNOWN_ANCHOR)
        return "expected an anchor (&name) for this alias (*name), found none";
    return fmt::format("expected valid YAML, found: {}", printable(message, 200));
}

} // namespace

YamlNode parse_yaml(std::string_view text, const YamlSource &source, const YamlLimits &limits) {
    const auto shared = std::make_shared<const YamlSource>(source);
    const YamlText checked(text, *shared, limits.bytes);
    std::string bytes(checked.text());
    // yaml-cpp does not report an open quote if the text ends right after a line break
    if (bytes.ends_with('\n')) bytes += '#';
    std::istringstream stream(std::move(bytes));
    YamlBuilder builder(checked, shared, limits);
    // exceptions of the builder pass through the parser
    try {
        YAML::Parser parser(stream);
        while (parser.HandleNextDocument(builder)) {
        }
    } catch (const YAML::Exception &error) {
        const auto [line, column] = checked.place(error.mark);
        throw_at(checked.location(line, column), ErrorKind::input, "{}",
                 explain(error.msg, checked.line(line)));
    }
    return builder.take();
}

YamlNode load_yaml(const std::filesystem::path &path, const YamlLimits &limits) {
    const std::string text = read_text_file(path, limits.bytes);
    return parse_yaml(text, {path.string(), absolute_path(path).parent_path()}, limits);
}

} // namespace keel::pipeline
