#include "model/config_reader.hpp"

#include "base/suggest.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace keel::model {

void ConfigReader::refuse(std::string_view key, std::string_view expected) const {
    const auto found = object_.find(key);
    fail(key, fmt::format("expected {}, found {}", expected,
                          found              ? found->shown()
                          : object_.has(key) ? "null"
                                             : "nothing"));
}

void ConfigReader::fail(std::string_view key, std::string_view message) const {
    object_.fail(key, message);
}

int64_t ConfigReader::integer(const char *key, int64_t low, int64_t high) const {
    const auto value = object_.find(key);
    if (!value) refuse(key, fmt::format("an integer from {} to {}", low, high));
    return value->integer(low, high);
}

int64_t ConfigReader::integer(const char *key, int64_t low, int64_t high, int64_t fallback) const {
    return has(key) ? integer(key, low, high) : fallback;
}

double ConfigReader::number(const char *key, double low, double high) const {
    const auto value = object_.find(key);
    if (!value) refuse(key, fmt::format("a number from {} to {}", low, high));
    return value->number(low, high);
}

double ConfigReader::number(const char *key, double low, double high, double fallback) const {
    return has(key) ? number(key, low, high) : fallback;
}

bool ConfigReader::boolean(const char *key, bool fallback) const {
    return object_.flag_or(key, fallback);
}

std::string ConfigReader::text(const char *key, std::string_view fallback) const {
    const auto value = object_.find(key);
    return value ? value->text() : std::string(fallback);
}

std::vector<int64_t> ConfigReader::integers(const char *key, int64_t low, int64_t high,
                                            size_t count) const {
    const auto value = object_.find(key);
    if (!value) return {};
    if (!value->is_array()) return {value->integer(low, high)};
    std::vector<int64_t> out;
    for (size_t i = 0; i < value->size(count); ++i)
        out.push_back(value->element(i).integer(low, high));
    return out;
}

std::vector<double> ConfigReader::numbers(const char *key, double low, double high,
                                          size_t count) const {
    const auto value = object_.find(key);
    if (!value) return {};
    std::vector<double> out;
    for (size_t i = 0; i < value->size(count); ++i)
        out.push_back(value->element(i).number(low, high));
    return out;
}

std::vector<std::string> ConfigReader::texts(const char *key, size_t count) const {
    const auto value = object_.find(key);
    if (!value) return {};
    std::vector<std::string> out;
    for (size_t i = 0; i < value->size(count); ++i) out.push_back(value->element(i).text());
    return out;
}

std::optional<ConfigReader> ConfigReader::object(const char *key) const {
    const auto value = object_.find(key);
    if (!value) return std::nullopt;
    if (!value->is_object()) value->expected("an object");
    return ConfigReader(*value);
}

void ConfigReader::only(std::initializer_list<std::string_view> keys) const {
    for (const auto &[key, value] : object_.members()) {
        if (value.is_null() || std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
        const std::vector<std::string> known(keys.begin(), keys.end());
        fail(key, fmt::format("unknown key, so its effect would be lost{}; known keys: {}",
                              did_you_mean(key, known), fmt::join(keys, ", ")));
    }
}

} // namespace keel::model
