#include "plugin/param_table.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

namespace keel {
namespace {

constexpr uint32_t max_params = 1000;
constexpr size_t max_text = 4096;
constexpr double int64_edge = 9223372036854775808.0; // 2^63

// Copies a plugin's string, at most max_text bytes. So a string without a NUL is not read without
// limit.
std::string copy_text(const char *text) {
    return text == nullptr ? std::string() : std::string(text, ::strnlen(text, max_text));
}

bool snake_case(std::string_view key) {
    return !key.empty() && key.size() <= 64 && key[0] >= 'a' && key[0] <= 'z' &&
           std::all_of(key.begin(), key.end(), [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
           });
}

std::optional<int64_t> parse_int(std::string_view text) {
    const bool negative = text.starts_with('-');
    if (negative || text.starts_with('+')) text.remove_prefix(1);
    int base = 10;
    if (text.starts_with("0x")) {
        text.remove_prefix(2);
        base = 16;
    }
    if (text.starts_with('-')) return std::nullopt;
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size() || value > uint64_t{1} << 62)
        return std::nullopt;
    return negative ? -static_cast<int64_t>(value) : static_cast<int64_t>(value);
}

std::optional<double> parse_float(std::string_view text) {
    if (text.starts_with('+')) text.remove_prefix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
        return std::nullopt;
    return value;
}

std::optional<bool> parse_bool(std::string_view text) {
    if (text == "true" || text == "True" || text == "TRUE") return true;
    if (text == "false" || text == "False" || text == "FALSE") return false;
    return std::nullopt;
}

// A value that its row of the table allows.
struct Parsed {
    int64_t i = 0;
    double f = 0;
};

bool is_choice(const ParamSpec &spec, std::string_view text) {
    return std::find(spec.choices.begin(), spec.choices.end(), text) != spec.choices.end();
}

// Returns nullopt if the text does not have the type of the row, or is outside the row's range.
std::optional<Parsed> parse(const ParamSpec &spec, std::string_view text) {
    Parsed value;
    switch (spec.type) {
    case KEEL_PARAM_INT: {
        const auto number = parse_int(text);
        if (!number) return std::nullopt;
        value.i = *number;
        value.f = static_cast<double>(*number);
        break;
    }
    case KEEL_PARAM_FLOAT: {
        const auto number = parse_float(text);
        if (!number) return std::nullopt;
        value.f = *number;
        break;
    }
    case KEEL_PARAM_BOOL: {
        const auto flag = parse_bool(text);
        if (!flag) return std::nullopt;
        value.i = *flag ? 1 : 0;
        return value;
    }
    case KEEL_PARAM_CHOICE:
        if (!is_choice(spec, text)) return std::nullopt;
        return value;
    default: return value;
    }
    if (value.f < spec.min || value.f > spec.max) return std::nullopt;
    return value;
}

std::string number_text(const ParamSpec &spec, double value) {
    return spec.type == KEEL_PARAM_INT ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

std::string found_text(const GivenParam &given) {
    switch (given.form) {
    case GivenParam::Form::null: return "nothing";
    case GivenParam::Form::list: return "a list";
    case GivenParam::Form::map: return "a map";
    case GivenParam::Form::quoted: return fmt::format("the string \"{}\"", printable(given.text));
    default: return fmt::format("'{}'", printable(given.text));
    }
}

bool has_text(const ParamSpec &spec) {
    return spec.type == KEEL_PARAM_STRING || spec.type == KEEL_PARAM_CHOICE ||
           spec.type == KEEL_PARAM_PATH;
}

// In YAML a number in quotes is a string. Keel refuses a number in quotes, because YAML and Keel
// would read different values.
bool form_fits(const ParamSpec &spec, GivenParam::Form form) {
    return form == GivenParam::Form::plain || (has_text(spec) && form == GivenParam::Form::quoted);
}

ParamSpec adopt_spec(const std::string &owner, uint32_t index, const keel_param_spec *theirs) {
    const auto refuse = [&](const std::string &why) {
        throw_error(ErrorKind::plugin,
                    "{}: row {} of the plugin's parameter table {}; this is a fault of the plugin: "
                    "report it to its author",
                    owner, index, why);
    };
    keel_param_spec row;
    if (keel_adopt(&row, sizeof row, theirs, KEEL_PREFIX(keel_param_spec, default_utf8)) != KEEL_OK)
        refuse(theirs == nullptr ? "is NULL" : "is too small, or has another ABI major version");
    ParamSpec spec{.key = copy_text(row.key),
                   .doc = copy_text(row.doc),
                   .type = row.type,
                   .required = (row.flags & KEEL_PARAM_REQUIRED) != 0,
                   .min = row.min,
                   .max = row.max,
                   .default_text = copy_text(row.default_utf8),
                   .choices = {}};
    if (!snake_case(spec.key))
        refuse(fmt::format("has the key '{}', which is not snake_case", printable(spec.key)));
    const auto refuse_key = [&](const std::string &why) {
        refuse(fmt::format("('{}') {}", spec.key, why));
    };
    if (spec.type < KEEL_PARAM_INT || spec.type > KEEL_PARAM_PATH)
        refuse_key(fmt::format("has the unknown type {}", spec.type));
    const bool number = spec.type == KEEL_PARAM_INT || spec.type == KEEL_PARAM_FLOAT;
    if (number && !(spec.min <= spec.max))
        refuse_key(fmt::format("has the empty range {} to {}", spec.min, spec.max));
    const bool has_words = spec.type == KEEL_PARAM_CHOICE || spec.type == KEEL_PARAM_PATH;
    for (uint32_t i = 0; has_words && row.choices != nullptr && row.choices[i] != nullptr; ++i) {
        if (i == max_params) refuse_key("has a list of choices that does not end with NULL");
        spec.choices.push_back(copy_text(row.choices[i]));
    }
    if (spec.type == KEEL_PARAM_CHOICE && spec.choices.empty()) refuse_key("has no choices");
    if (spec.required) return spec;
    if (row.default_utf8 == nullptr) refuse_key("has no default and is not required");
    if (spec.type == KEEL_PARAM_PATH && !spec.default_text.empty() && spec.default_text[0] != '/' &&
        !is_choice(spec, spec.default_text))
        refuse_key(fmt::format("has the default '{}', which is not an absolute path",
                               printable(spec.default_text)));
    if (!parse(spec, spec.default_text))
        refuse_key(fmt::format("expects {}, but its default is '{}'", spec.expects(),
                               printable(spec.default_text)));
    return spec;
}

} // namespace

std::string ParamSpec::expects() const {
    switch (type) {
    case KEEL_PARAM_BOOL: return "true or false";
    case KEEL_PARAM_CHOICE: return fmt::format("one of: {}", fmt::join(choices, ", "));
    case KEEL_PARAM_STRING: return "text";
    case KEEL_PARAM_PATH:
        return choices.empty() ? "a path"
                               : fmt::format("a path, or one of: {}", fmt::join(choices, ", "));
    default: break;
    }
    const std::string what = type == KEEL_PARAM_INT ? "an integer" : "a number";
    const bool below = min > -int64_edge;
    const bool above = max < int64_edge;
    if (below && above)
        return fmt::format("{} from {} to {}", what, number_text(*this, min),
                           number_text(*this, max));
    if (below) return fmt::format("{} of at least {}", what, number_text(*this, min));
    if (above) return fmt::format("{} of at most {}", what, number_text(*this, max));
    return what;
}

const keel_param *ParamValues::find(std::string_view key) const noexcept {
    for (const keel_param &value : values_)
        if (key == value.key) return &value;
    return nullptr;
}

ParamTable::ParamTable(std::string owner, const keel_param_spec *const *specs, uint32_t n)
    : owner_(std::move(owner)) {
    if (n > max_params || (n != 0 && specs == nullptr)) {
        throw_error(
            ErrorKind::plugin,
            "{}: declares {} parameters {}; this is a fault of the plugin: report it to its author",
            owner_, n, specs == nullptr ? "but no table" : "which is more than 1000");
    }
    for (uint32_t i = 0; i < n; ++i) {
        ParamSpec spec = adopt_spec(owner_, i, specs[i]);
        for (const ParamSpec &other : specs_) {
            if (other.key == spec.key)
                throw_error(ErrorKind::plugin,
                            "{}: declares the parameter '{}' twice; this is a fault of the plugin: "
                            "report it "
                            "to its author",
                            owner_, spec.key);
        }
        specs_.push_back(std::move(spec));
    }
}

ParamValues ParamTable::bind(std::span<const GivenParam> given, const SourceLocation &where) const {
    std::vector<const GivenParam *> by_row(specs_.size(), nullptr);
    for (const GivenParam &param : given) {
        const auto row = std::find_if(specs_.begin(), specs_.end(),
                                      [&](const auto &s) { return s.key == param.key; });
        if (row == specs_.end()) {
            std::vector<std::string> keys;
            for (const ParamSpec &spec : specs_) keys.push_back(spec.key);
            std::string cure = did_you_mean(param.key, keys);
            if (cure.empty())
                cure = keys.empty() ? "; it takes no parameters"
                                    : fmt::format("; it takes: {}", fmt::join(keys, ", "));
            throw_at(param.where_key(), ErrorKind::input, "unknown key '{}' for {}{}",
                     printable(param.key), owner_, cure);
        }
        const GivenParam *&slot = by_row[static_cast<size_t>(row - specs_.begin())];
        if (slot != nullptr) {
            throw_at(param.where_key(), ErrorKind::input,
                     "'{}' of {} is given twice, first at {}; remove one", param.key, owner_,
                     to_string(slot->where_key()));
        }
        slot = &param;
    }

    ParamValues result;
    // this vector must never reallocate, because the values point into it
    result.texts_.reserve(specs_.size() * 2);
    result.values_.reserve(specs_.size());
    for (size_t i = 0; i < specs_.size(); ++i) {
        const ParamSpec &spec = specs_[i];
        const GivenParam *param = by_row[i];
        if (param == nullptr && spec.required) {
            throw_at(where, ErrorKind::input, "{} needs the parameter '{}' ({}): {}", owner_,
                     spec.key, spec.expects(), printable(spec.doc));
        }
        const std::string &text = param != nullptr ? param->text : spec.default_text;
        const auto parsed =
            param == nullptr || form_fits(spec, param->form) ? parse(spec, text) : std::nullopt;
        if (!parsed) {
            const char *cure =
                param->form == GivenParam::Form::quoted ? "; write it without quotes" : "";
            throw_at(param->at, ErrorKind::input, "'{}' of {} expects {}, found {}{}", spec.key,
                     owner_, spec.expects(), found_text(*param),
                     spec.type == KEEL_PARAM_CHOICE ? did_you_mean(text, spec.choices) : cure);
        }
        // a relative path starts at the folder of the file that has the parameter
        const bool relative = spec.type == KEEL_PARAM_PATH && param != nullptr && !text.empty() &&
                              !is_choice(spec, text);
        const std::string shown = relative ? resolve_path(param->folder, text).string() : text;
        const char *key = result.texts_.emplace_back(spec.key).c_str();
        const char *value = has_text(spec) ? result.texts_.emplace_back(shown).c_str() : nullptr;
        result.values_.push_back({KEEL_HEADER(keel_param), key, spec.type,
                                  param == nullptr ? 1u : 0u, parsed->i, parsed->f, value});
    }
    for (const keel_param &value : result.values_) result.pointers_.push_back(&value);
    return result;
}

} // namespace keel
