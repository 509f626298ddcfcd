#include "config/config_writer.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "config/schema.hpp"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <map>

namespace keel::pipeline {
namespace {

constexpr int indent_width = 2;

std::vector<std::string_view> parts_of(std::string_view path) {
    std::vector<std::string_view> parts;
    for (size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
        parts.push_back(path.substr(0, dot));
        path.remove_prefix(dot + 1);
    }
    parts.push_back(path);
    return parts;
}

// Opens the maps that lead to `path` and are not open yet. Returns the indentation of the key.
std::string open_sections(std::string_view path, std::vector<std::string_view> &open,
                          std::string &out) {
    const std::vector<std::string_view> parts = parts_of(path);
    size_t same = 0;
    while (same < open.size() && same + 1 < parts.size() && open[same] == parts[same]) ++same;
    open.assign(parts.begin(), parts.end() - 1);
    for (size_t i = same; i < open.size(); ++i)
        out += fmt::format("{:{}}{}:\n", "", i * indent_width, open[i]);
    return std::string(open.size() * indent_width, ' ');
}

std::string origin_text(const SourceLocation &where) {
    return where.file.empty() ? "default" : printable(to_string(where), 400);
}

} // namespace

std::vector<ResolvedKey> resolved_keys(const PipelineConfig &config) {
    std::vector<ResolvedKey> lines;
    for (const auto &key : schema().keys) key->list(config, lines);
    // `backend` and `hybrid` exclude each other. A pipeline with keys of both would be refused.
    const std::string_view absent = config.hybrid.is_given() ? "backend." : "hybrid.";
    std::erase_if(lines, [&](const ResolvedKey &line) { return line.path.starts_with(absent); });
    return lines;
}

std::string to_yaml(const PipelineConfig &config, bool origins) {
    std::string out;
    std::vector<std::string_view> open;
    const std::vector<ResolvedKey> lines = resolved_keys(config);
    for (const ResolvedKey &line : lines) {
        if (line.value.empty() && !origins) continue;
        out += open_sections(line.path, open, out);
        const std::string_view key = last_part(line.path);
        if (line.value.empty()) {
            out += fmt::format("# {}: not set\n", key);
        } else if (origins) {
            out += fmt::format("{}: {}  # {}\n", key, line.value, origin_text(line.where));
        } else {
            out += fmt::format("{}: {}\n", key, line.value);
        }
    }
    return out;
}

namespace {

// Writes a sentence in comment lines of at most 100 characters.
void add_comment(std::string &out, const std::string &indent, std::string_view text) {
    constexpr size_t width = 100;
    while (!text.empty()) {
        size_t cut = width - indent.size() - 2;
        if (text.size() <= cut) {
            cut = text.size();
        } else {
            const size_t space = text.rfind(' ', cut);
            cut = space == std::string_view::npos || space == 0 ? text.find(' ', 1) : space;
            if (cut == std::string_view::npos) cut = text.size();
        }
        out += fmt::format("{}# {}\n", indent, text.substr(0, cut));
        text.remove_prefix(std::min(text.size(), cut + 1));
    }
}

std::string init_key(const Key<PipelineConfig> &key, const InitValue *value,
                     const std::string &indent) {
    std::string out;
    std::string text = key.doc;
    std::string expected = key.expectation();
    if (key.form() == Form::choice) {
        expected[0] = static_cast<char>(std::toupper(expected[0]));
        text += fmt::format(" {}.", expected);
    }
    add_comment(out, indent, text);
    if (value != nullptr && !value->note.empty()) add_comment(out, indent, value->note);
    const std::string preset = key.default_text();
    const std::string raw = value != nullptr  ? value->value
                            : !preset.empty() ? preset
                                              : std::string(key.example);
    const bool quoted = raw.starts_with('"') || raw.starts_with('\'');
    const std::string content = key.form() == Form::text && !quoted ? yaml_scalar(raw) : raw;
    out += fmt::format("{}{}{}: {}\n", indent, value != nullptr ? "" : "# ", last_part(key.path),
                       content);
    return out;
}

} // namespace

std::string init_yaml(std::span<const InitValue> values) {
    std::map<std::string, const InitValue *, std::less<>> by_path;
    for (const InitValue &value : values) {
        if (find_key(value.path) == nullptr) {
            throw_error(ErrorKind::usage, "expected a key of a pipeline, found '{}'{}",
                        printable(value.path, 60),
                        key_suggestion(parent_path(value.path), last_part(value.path)));
        }
        by_path[value.path] = &value;
    }
    std::string out;
    add_comment(out, "",
                "A Keel pipeline: everything that a run depends on. A key with a '#' before it has "
                "its default, or "
                "none, as its comment says. Paths are relative to this file. 'keel config check "
                "FILE' says what is "
                "wrong "
                "with it, 'keel config show FILE' what it comes to.");
    std::string section;
    for (const auto &key : schema().keys) {
        const std::string parent(parent_path(key->path));
        // A section is opened before its first key. Sections inside this section come after its own
        // keys.
        if (parent != section) {
            const size_t depth = static_cast<size_t>(std::count(parent.begin(), parent.end(), '.'));
            const bool goes_back = section.starts_with(parent + ".");
            if (!parent.empty() && !goes_back) {
                const std::string indent(depth * indent_width, ' ');
                out += "\n";
                add_comment(out, indent, find_section(parent)->doc);
                out += fmt::format("{}{}:\n", indent, last_part(parent));
            } else if (parent.empty()) {
                out += "\n";
            }
            section = parent;
        }
        const size_t depth =
            parent.empty() ? 0
                           : static_cast<size_t>(std::count(parent.begin(), parent.end(), '.')) + 1;
        const auto value = by_path.find(key->path);
        out += init_key(*key, value == by_path.end() ? nullptr : value->second,
                        std::string(depth * indent_width, ' '));
    }
    return out;
}

} // namespace keel::pipeline
