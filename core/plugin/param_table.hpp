#pragma once

#include "base/location.hpp"

#include <keel/plugin.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// One row of a plugin's parameter table, checked and copied: nothing in it points into the plugin.
struct ParamSpec {
    std::string key;
    std::string doc;
    keel_param_type type = KEEL_PARAM_STRING;
    bool required = false;            // no default: the config must name it
    double min = 0, max = 0;          // INT, FLOAT: inclusive
    std::string default_text;         // as it would stand in YAML
    std::vector<std::string> choices; // CHOICE: what it may be; PATH: words that are no path

    // "an integer from 1 to 4096", "true or false", "one of: avg, max": for errors and `keel
    // plugins show`.
    std::string expects() const;
};

// A parameter as the config gives it.
struct GivenParam {
    // How the value was written. `plain` is a YAML scalar without quotes, and what follows `=` on
    // the command line.
    enum class Form { plain, quoted, null, list, map };

    std::string key;
    std::string text; // of a scalar
    Form form = Form::plain;
    SourceLocation at;            // of the value
    SourceLocation key_at;        // of the key; nothing known: the value's
    std::filesystem::path folder; // that a relative path starts from; empty: the working directory

    const SourceLocation &where_key() const { return key_at.file.empty() ? at : key_at; }
};

// A plugin's parameters, complete and in the order of its table, in the form that its create calls
// take.
class ParamValues {
  public:
    ParamValues() = default;
    ParamValues(ParamValues &&) = default;
    ParamValues &operator=(ParamValues &&) = default;
    ParamValues(const ParamValues &) = delete; // the array points into itself
    ParamValues &operator=(const ParamValues &) = delete;

    // NULL if there are none. Valid as long as this object, or the one that it was moved to.
    const keel_param *const *data() const noexcept {
        return pointers_.empty() ? nullptr : pointers_.data();
    }
    uint32_t size() const noexcept { return static_cast<uint32_t>(pointers_.size()); }
    std::span<const keel_param> rows() const noexcept { return values_; }
    const keel_param *find(std::string_view key) const noexcept;

  private:
    friend class ParamTable;
    std::vector<std::string> texts_; // what `key` and `s` point to
    std::vector<keel_param> values_;
    std::vector<const keel_param *> pointers_;
};

// The checked parameter table of one plugin.
class ParamTable {
  public:
    ParamTable() = default;
    // `owner` names the plugin in errors: "policy snapkv". Throws Error(plugin) if the table is not
    // well-formed: keys unique and snake_case, known types, ranges in order, choices given,
    // defaults that pass their own check.
    ParamTable(std::string owner, const keel_param_spec *const *specs, uint32_t n);

    const std::string &owner() const noexcept { return owner_; }
    std::span<const ParamSpec> specs() const noexcept { return specs_; }

    // Checks what the config gives and fills in the rest. `where` is the place of the plugin's
    // section, for what is missing. Throws Error(input) "FILE:LINE:COLUMN: ..." for an unknown or
    // doubled key, a wrong type, a value out of range, a missing required key.
    ParamValues bind(std::span<const GivenParam> given, const SourceLocation &where) const;

  private:
    std::string owner_;
    std::vector<ParamSpec> specs_;
};

} // namespace keel
