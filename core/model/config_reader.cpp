#include "model/config_reader.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <algorithm>

namespace keel::model {
namespace {

using nlohmann::json;

std::optional<int64_t> as_integer(const json &value, int64_t low, int64_t high) {
    // an unsigned value beyond int64 would wrap in get<int64_t>()
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
        return std::nullopt;
    if (!value.is_number_integer()) return std::nullopt;
    const auto number = value.get<int64_t>();
    if (number < low || number > high) return std::nullopt;
    return number;
}

std::string integer_range(int64_t low, int64_t high) {
    return fmt::format("an integer from {} to {}", low, high);
}

} // namespace

ConfigReader::ConfigReader(const json &object, std::string_view name, std::string prefix)
    : object_(&object), name_(name), prefix_(std::move(prefix)) {}

const json *ConfigReader::get(const char *key) const {
    const auto found = object_->find(key);
    return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::is_null(const char *key) const {
    const auto found = object_->find(key);
    return found != object_->end() && found->is_null();
}

void ConfigReader::refuse(std::string_view key, std::string_view expected) const {
    const auto found = object_->find(std::string(key));
    fail(key, fmt::format("expected {}, found {}", expected,
                          found == object_->end() ? "nothing" : describe(*found)));
}

void ConfigReader::fail(std::string_view key, std::string_view message) const {
    throw_error(ErrorKind::input, "{}: {}{}: {}", name_, prefix_, printable(key), message);
}

int64_t ConfigReader::integer(const char *key, int64_t low, int64_t high) const {
    const json *value = get(key);
    const auto number = value == nullptr ? std::nullopt : as_integer(*value, low, high);
    if (!number) refuse(key, integer_range(low, high));
    return *number;
}

int64_t ConfigReader::integer(const char *key, int64_t low, int64_t high, int64_t fallback) const {
    return has(key) ? integer(key, low, high) : fallback;
}

double ConfigReader::number(const char *key, double low, double high) const {
    const json *value = get(key);
    const double number = value != nullptr && value->is_number() ? value->get<double>() : low - 1;
    if (!(number >= low && number <= high)) refuse(key, fmt::format("a number from {} to {}", low, high));
    return number;
}

double ConfigReader::number(const char *key, double low, double high, double fallback) const {
    return has(key) ? number(key, low, high) : fallback;
}

bool ConfigReader::boolean(const char *key, bool fallback) const {
    const json *value = get(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) refuse(key, "true or false");
    return value->get<bool>();
}

std::string ConfigReader::text(const char *key, std::string_view fallback) const {
    const json *value = get(key);
    if (value == nullptr) return std::string(fallback);
    if (!value->is_string()) refuse(key, "a string");
    return value->get<std::string>();
}

std::vector<int64_t> ConfigReader::integers(const char *key, int64_t low, int64_t high, size_t count) const {
    const json *value = get(key);
    if (value == nullptr) return {};
    if (!value->is_array()) return {integer(key, low, high)};
    if (value->size() > count) refuse(key, fmt::format("at most {} integers", count));
    std::vector<int64_t> out;
    for (const json &entry : *value) {
        const auto number = as_integer(entry, low, high);
        if (!number) {
            fail(key, fmt::format("entry {}: expected {}, found {}", out.size(), integer_range(low, high),
                                  describe(entry)));
        }
        out.push_back(*number);
    }
    return out;
}

std::vector<std::string> ConfigReader::texts(const char *key, size_t count) const {
    const json *value = get(key);
    if (value == nullptr) return {};
    if (!value->is_array() || value->size() > count)
        refuse(key, fmt::format("an array of at most {} strings", count));
    std::vector<std::string> out;
    for (const json &entry : *value) {
        if (!entry.is_string())
            fail(key, fmt::format("entry {}: expected a string, found {}", out.size(), describe(entry)));
        out.push_back(entry.get<std::string>());
    }
    return out;
}

std::optional<ConfigReader> ConfigReader::object(const char *key) const {
    const json *value = get(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_object()) refuse(key, "an object");
    return ConfigReader(*value, name_, prefix_ + key + ".");
}

void ConfigReader::only(std::initializer_list<std::string_view> keys) const {
    for (const auto &item : object_->items()) {
        if (item.value().is_null() || std::find(keys.begin(), keys.end(), item.key()) != keys.end()) continue;
        std::string known;
        for (const std::string_view key : keys)
            known += (known.empty() ? "" : ", ") + std::string(key);
        fail(item.key(), fmt::format("unknown key, its effect would be lost; known here: {}", known));
    }
}

} // namespace keel::model
