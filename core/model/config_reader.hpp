#pragma once

// Internal to core/model: typed, range-checked access to the keys of a JSON object.

#include "model/json.hpp"

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel::model {

class ConfigReader {
  public:
    // `object` and `name` must outlive the reader. `prefix` stands before keys in errors, e.g. "rope_scaling.".
    ConfigReader(const nlohmann::json &object, std::string_view name, std::string prefix = {});

    // Null counts as absent everywhere: that is how Hugging Face writes "not set".
    bool has(const char *key) const { return get(key) != nullptr; }
    const nlohmann::json *get(const char *key) const;
    // Written as null: where that differs from being left out, which stands for a default.
    bool is_null(const char *key) const;

    // Each throws Error(input) if the key is absent (where there is no fallback), of another type or out of range.
    int64_t integer(const char *key, int64_t low, int64_t high) const;
    int64_t integer(const char *key, int64_t low, int64_t high, int64_t fallback) const;
    double number(const char *key, double low, double high) const;
    double number(const char *key, double low, double high, double fallback) const;
    bool boolean(const char *key, bool fallback) const;
    std::string text(const char *key, std::string_view fallback) const;
    // One integer or an array of at most `count`; empty if absent.
    std::vector<int64_t> integers(const char *key, int64_t low, int64_t high, size_t count) const;
    std::vector<std::string> texts(const char *key, size_t count) const;
    // The object under `key`, if there is one.
    std::optional<ConfigReader> object(const char *key) const;
    // Throws if there is a key that is not in the list: for objects where an unknown key changes the meaning.
    void only(std::initializer_list<std::string_view> keys) const;

    // Throws Error(input) "NAME: PREFIXkey: expected WHAT, found VALUE".
    [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;
    [[noreturn]] void fail(std::string_view key, std::string_view message) const;

  private:
    const nlohmann::json *object_;
    std::string_view name_;
    std::string prefix_;
};

} // namespace keel::model
