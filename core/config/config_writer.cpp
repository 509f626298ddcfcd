#include "config/config_writer.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "config/schema.hpp"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace keel::pipeline {
namespace {

constexpr int indent_width = 2;

std::string flow_list(std::span<const std::string> items) {
    std::string text;
    for (const std::string &item : items)
        text += (text.empty() ? "" : ", ") + yaml_scalar(item);
    return "[" + text + "]";
}

// What a member's value is in YAML; empty: it has none.
class Encoder {
  public:
    explicit Encoder(const KeySpec &key) : key_(key) {}

    std::string operator()(const std::string &v) const { return yaml_scalar(v); }
    std::string operator()(const std::filesystem::path &v) const { return yaml_scalar(v.string()); }
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return fmt::format("{}", v); }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(keel_dtype v) const {
        return v == KEEL_DTYPE_NONE ? "stored" : keel_dtype_name(v);
    }
    std::string operator()(PositionMode v) const { return choice(static_cast<size_t>(v)); }
    std::string operator()(SyncStrategy v) const { return choice(static_cast<size_t>(v)); }
    std::string operator()(StepReplay v) const { return choice(static_cast<size_t>(v)); }
    std::string operator()(StepAhead v) const { return choice(static_cast<size_t>(v)); }
    std::string operator()(const std::vector<std::string> &v) const { return flow_list(v); }
    std::string operator()(const std::vector<double> &v) const {
        return fmt::format("[{}]", fmt::join(v, ", "));
    }
    std::string operator()(const std::vector<Span> &v) const {
        std::string text;
        for (const Span &span : v)
            text += fmt::format("{}[{}, {}]", text.empty() ? "" : ", ", span.from, span.to);
        return "[" + text + "]";
    }
    std::string operator()(const std::vector<Trigger> &v) const {
        std::vector<std::string> words;
        for (const Trigger trigger : v)
            words.push_back(choice(static_cast<size_t>(trigger)));
        return flow_list(words);
    }
    std::string operator()(const std::vector<SwitchTrigger> &v) const {
        if (v.empty()) return {}; // not given
        std::vector<std::string> words;
        for (const SwitchTrigger trigger : v)
            words.push_back(choice(static_cast<size_t>(trigger)));
        return flow_list(words);
    }
    std::string operator()(const std::vector<HybridBackend> &v) const;
    std::string operator()(const std::vector<LayerShare> &v) const {
        std::string text;
        for (const LayerShare &share : v)
            text += fmt::format("{}{{range: {}-{}, on: {}}}", text.empty() ? "" : ", ", share.first,
                                share.last, yaml_scalar(share.on));
        return text.empty() ? text : "[" + text + "]";
    }
    template <typename T>
    std::string operator()(const std::optional<T> &v) const {
        return v ? (*this)(*v) : std::string(key_.word);
    }

  private:
    std::string choice(size_t i) const { return std::string(key_.choices[i]); }
    const KeySpec &key_;
};

std::string param_value(const RawParam &param) {
    if (param.is_null) return "null";
    return param.is_sequence ? flow_list(param.items) : yaml_scalar(param.text);
}

// {gpu: {plugin: cpu, device: auto, params: {threads: 2}, kv: {dtype: f16}}, ...}
std::string Encoder::operator()(const std::vector<HybridBackend> &v) const {
    std::string all;
    for (const HybridBackend &backend : v) {
        std::string params, kv;
        for (const RawParam &param : backend.params)
            params += fmt::format("{}{}: {}", params.empty() ? "" : ", ", yaml_scalar(param.key),
                                  param_value(param));
        const auto add = [&](const char *key, const Setting<std::optional<keel_dtype>> &dtype) {
            if (*dtype) kv += fmt::format("{}{}: {}", kv.empty() ? "" : ", ", key, (*this)(**dtype));
        };
        add("dtype", backend.kv_dtype);
        add("key_dtype", backend.key_dtype);
        add("value_dtype", backend.value_dtype);
        all +=
            fmt::format("{}{}: {{plugin: {}, device: {}", all.empty() ? "" : ", ", yaml_scalar(backend.name),
                        yaml_scalar(*backend.plugin), yaml_scalar(*backend.device));
        if (!params.empty()) all += fmt::format(", params: {{{}}}", params);
        if (!kv.empty()) all += fmt::format(", kv: {{{}}}", kv);
        all += "}";
    }
    return all.empty() ? all : "{" + all + "}";
}

// One line for each value, params one for each of them.
class Collector {
  public:
    explicit Collector(std::vector<ResolvedKey> &lines) : lines_(lines) {}

    template <typename T>
    void operator()(std::string_view path, const Setting<T> &setting) {
        const KeySpec &key = *find_key(path);
        std::string value = Encoder(key)(setting.value);
        // a key without a default that nobody gave has no value, not an empty one
        if (setting.is_default() && !key.required && key.default_text.empty() && value == "\"\"")
            value.clear();
        lines_.push_back({std::string(path), std::move(value), setting.where});
    }
    void operator()(std::string_view path, const std::vector<RawParam> &params) {
        if (params.empty()) lines_.push_back({std::string(path), "{}", {}});
        for (const RawParam &param : params)
            lines_.push_back({join_path(path, yaml_scalar(param.key)), param_value(param), param.where});
    }

  private:
    std::vector<ResolvedKey> &lines_;
};

std::vector<std::string_view> parts_of(std::string_view path) {
    std::vector<std::string_view> parts;
    for (size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
        parts.push_back(path.substr(0, dot));
        path.remove_prefix(dot + 1);
    }
    parts.push_back(path);
    return parts;
}

// Opens the maps that lead to `path` and are not open yet. Returns the indentation of the key itself.
std::string open_sections(std::string_view path, std::vector<std::string_view> &open, std::string &out) {
    const std::vector<std::string_view> parts = parts_of(path);
    size_t same = 0;
    while (same < open.size() && same + 1 < parts.size() && open[same] == parts[same])
        ++same;
    open.assign(parts.begin(), parts.end() - 1);
    for (size_t i = same; i < open.size(); ++i)
        out += fmt::format("{:{}}{}:\n", "", i * indent_width, open[i]);
    return std::string(open.size() * indent_width, ' ');
}

std::string origin_text(const SourceLocation &where) {
    return where.file.empty() ? "default" : printable(to_string(where), 400);
}

} // namespace

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
        // U+0080..U+009F: C2 80..C2 9F in UTF-8
        const bool c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
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

std::vector<ResolvedKey> resolved_keys(const PipelineConfig &config) {
    std::vector<ResolvedKey> lines;
    visit_settings(config, Collector(lines));
    // A pipeline has one of the two, and what it came to is a pipeline.
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

// Words of a sentence in comment lines of at most 100 characters.
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

bool is_text_key(const KeySpec &key) {
    return key.type == KeyType::text || key.type == KeyType::path || key.type == KeyType::plugin;
}

std::string init_key(const KeySpec &key, const InitValue *value, const std::string &indent) {
    std::string out;
    std::string text(key.doc);
    const bool lists = key.type == KeyType::choice || key.type == KeyType::choice_list;
    if (lists)
        text += fmt::format(" {}{}.", static_cast<char>(std::toupper(expectation(key)[0])),
                            expectation(key).substr(1));
    add_comment(out, indent, text);
    if (value != nullptr && !value->note.empty()) add_comment(out, indent, value->note);
    const std::string_view shown = key.default_text.empty() ? key.example : key.default_text;
    const std::string_view raw = value != nullptr ? std::string_view(value->value) : shown;
    const bool quoted = raw.starts_with('"') || raw.starts_with('\'');
    const std::string content = is_text_key(key) && !quoted ? yaml_scalar(raw) : std::string(raw);
    out += fmt::format("{}{}{}: {}\n", indent, value != nullptr ? "" : "# ", last_part(key.path), content);
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
    add_comment(
        out, "",
        "A Keel pipeline: everything that a run depends on. A key with a '#' before it has its default, or "
        "none, as its comment says. Paths are relative to this file. 'keel config check FILE' says what is "
        "wrong "
        "with it, 'keel config show FILE' what it comes to.");
    std::string section;
    for (const KeySpec &key : schema_keys()) {
        const std::string parent(parent_path(key.path));
        // a section opens with its first key; those inside another one stand after that one's own first keys
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
            parent.empty() ? 0 : static_cast<size_t>(std::count(parent.begin(), parent.end(), '.')) + 1;
        const auto value = by_path.find(key.path);
        out += init_key(key, value == by_path.end() ? nullptr : value->second,
                        std::string(depth * indent_width, ' '));
    }
    return out;
}

} // namespace keel::pipeline
