#include "config/config_writer.hpp"
#include "config/override.hpp"
#include "config/schema.hpp"

#include <fmt/format.h>

namespace keel::pipeline {
namespace {

constexpr std::string_view intro = R"(# The pipeline file

<!-- Written from core/config/schema.cpp by config_markdown(). To change it, change the table there and run
     KEEL_UPDATE_DOCS=1 on the pipeline tests. -->

A pipeline is a YAML file with everything that a run depends on: which model, computed by which backend, with which
cache, which eviction policy, and how text is drawn. Two keys are required (`hybrid` may stand in the place of `backend`); the
shortest pipeline is

```yaml
model: ../models/tiny
backend: cpu
```

`keel config init MODEL` writes a commented one, `keel config check FILE` says what is wrong with one, and
`keel config show FILE` prints every key with its value and where that came from. `configs/` has an example for each use.

- **Paths** are relative to the file they stand in; on the command line, to the working directory.
- **Unknown keys** are errors. Each error is one line with file,
  line and column, what was expected and what was found.
- **YAML** is read as one UTF-8 document of at most 1 MiB, 64 levels and 20000 values. Anchors and aliases work; tags do
  not.
- **Nothing behind a key** (`log:`) is as good as no key where there is no default. A section may be empty.

## Overrides

`--set KEY=VALUE` changes one key for one run, and can be repeated; later ones win. VALUE is YAML, so lists and maps go
in brackets: `--set "policy.trigger.on=[budget, every_n]"`. Keys that hold a text, a path or a plugin's name take VALUE
as it stands, with no need for more quotes: `--set generation.prompt="Once: upon"`.

An override also takes away what it contradicts:

| an override of | drops from the file |
|---|---|
)";

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
    std::string out(intro);
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
