#pragma once

#include "base/location.hpp"

#include <keel/plugin.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// One row of a plugin's parameter table, checked and copied. It has no pointers into the plugin.
struct ParamSpec {
    std::string key;
    std::string doc;
    keel_param_type type = KEEL_PARAM_STRING;
    // true: there is no default, so the config must give the parameter
    bool required = false;
    double min = 0, max = 0;          // for INT and FLOAT; both ends are allowed
    std::string default_text;         // as YAML
    std::vector<std::string> choices; // CHOICE: the allowed words; PATH: words that are not paths

    // Returns the allowed values for errors and `keel plugins show`: "an integer from 1 to 4096",
    // "true or false", "one of: avg, max".
    std::string expects() const;
};

// A parameter as the config gives it.
struct GivenParam {
    // The form in which the value was written. `plain`: a YAML scalar without quotes, or the text
    // after `=` on the command line.
    enum class Form { plain, quoted, null, list, map };

    std::string key;
    std::string text; // if the value is a scalar
    Form form = Form::plain;
    SourceLocation at;     // place of the value
    SourceLocation key_at; // place of the key; if unknown, place of the value
    // folder at which a relative path starts; empty: the working directory
    std::filesystem::path folder;

    const SourceLocation &where_key() const { return key_at.file.empty() ? at : key_at; }
};

// The parameters of a plugin, complete and in the order of its table. They have the form that the
// create functions of plugins take.
class ParamValues {
  public:
    ParamValues() = default;
    ParamValues(ParamValues &&) = default;
    ParamValues &operator=(ParamValues &&) = default;
    // not copyable, because the array has pointers into the object
    ParamValues(const ParamValues &) = delete;
    ParamValues &operator=(const ParamValues &) = delete;

    // NULL if there are no parameters. Valid while this object lives. After a move, valid while the
    // new object lives.
    const keel_param *const *data() const noexcept {
        return pointers_.empty() ? nullptr : pointers_.data();
    }
    uint32_t size() const noexcept { return static_cast<uint32_t>(pointers_.size()); }
    std::span<const keel_param> rows() const noexcept { return values_; }
    const keel_param *find(std::string_view key) const noexcept;

  private:
    friend class ParamTable;
    std::vector<std::string> texts_; // storage for `key` and `s` of the parameters
    std::vector<keel_param> values_;
    std::vector<const keel_param *> pointers_;
};

// The checked parameter table of one plugin.
class ParamTable {
  public:
    ParamTable() = default;
    // `owner` names the plugin in errors: "policy snapkv". Throws Error(plugin) if the table is not
    // well-formed. It is well-formed if:
    // - keys are unique and snake_case
    // - types are known
    // - each range has min <= max
    // - a CHOICE has choices
    // - each default is an allowed value
    ParamTable(std::string owner, const keel_param_spec *const *specs, uint32_t n);

    const std::string &owner() const noexcept { return owner_; }
    std::span<const ParamSpec> specs() const noexcept { return specs_; }

    // Checks the parameters that the config gives. Parameters that the config does not give get
    // their defaults. `where`: the place of the plugin's section, for errors about missing
    // parameters. Throws Error(input) "FILE:LINE:COLUMN: ..." for an unknown key, a repeated key, a
    // wrong type, a value out of range, or a missing required key.
    ParamValues bind(std::span<const GivenParam> given, const SourceLocation &where) const;

  private:
    std::string owner_;
    std::vector<ParamSpec> specs_;
};

} // namespace keel
