#include "config/config_writer.hpp"
#include "config/override.hpp"
#include "config/schema.hpp"
#include "config_intro.hpp"

#include <fmt/format.h>

namespace keel::pipeline {
namespace {

std::string rule_text(const OverrideRule &rule) {
    std::string drops;
    for (const std::string_view key : rule.drops)
        drops += fmt::format("{}`{}`", drops.empty() ? "" : ", ", join_path(rule.section, key));
    const std::string when = rule.when == OverrideRule::When::changed ? " with another value"
                             : rule.when == OverrideRule::When::lacks
                                 ? fmt::format(", not to `{}`", rule.word)
                                 : "";
    return fmt::format("| `{}`{} | {} |\n", join_path(rule.section, rule.key), when, drops);
}

std::string key_row(const Key<PipelineConfig> &key) {
    const std::string default_text = key.default_text();
    std::string preset = key.required ? "required" : "none";
    if (!default_text.empty()) preset = fmt::format("`{}`", default_text);
    if (!key.default_note.empty()) preset = key.default_note;
    return fmt::format("| `{}` | {} | {} | `{}` | {} |\n", last_part(key.path), key.expectation(),
                       preset, key.example, key.doc);
}

std::string section_text(const SectionSpec &section) {
    std::string rows;
    for (const auto &key : schema().keys) {
        if (parent_path(key->path) == section.path) rows += key_row(*key);
    }
    std::string out = section.path.empty()
                          ? "\n## Top-level keys\n\n"
                          : fmt::format("\n### {}\n\n{}", section.path, section.doc);
    if (!section.shorthand.empty())
        out += fmt::format(" `{0}: X` is short for `{0}: {{{1}: X}}`.", last_part(section.path),
                           section.shorthand);
    if (!section.path.empty()) out += "\n\n";
    return out + "| key | value | default | example | meaning |\n|---|---|---|---|---|\n" + rows;
}

} // namespace

std::string config_markdown() {
    std::string out(config_intro_md);
    for (const OverrideRule &rule : override_rules()) out += rule_text(rule);
    out += "| `backend.plugin` | `hybrid` |\n| `hybrid.backends` | `backend` |\n"
           "| `hybrid.backends.NAME.plugin` with another value | `hybrid.backends.NAME.params` |\n";
    out += "\n## Keys\n";
    for (const SectionSpec &section : schema().sections) {
        if (!section.path.empty()) out += section_text(section);
    }
    out += section_text(*find_section(""));
    return out;
}

} // namespace keel::pipeline
