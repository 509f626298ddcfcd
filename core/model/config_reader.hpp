#pragma once

// Used only in core/model. Gives typed access to the keys of a JSON object, with range checks.

#include "base/json_reader.hpp"

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel::model {

class ConfigReader {
  public:
    explicit ConfigReader(const JsonNode &object) : object_(object) {}

    // In all functions null counts as absent, because Hugging Face writes null for "not set".
    bool has(const char *key) const { return object_.find(key).has_value(); }
    // Returns true if the key is present with the value null. Use it for keys for which null and an
    // absent key have different meanings.
    bool is_null(const char *key) const { return object_.has(key) && !has(key); }

    // Each of these functions throws Error(input) if the value has another type or is out of range,
    // and if the key is absent and there is no fallback.
    int64_t integer(const char *key, int64_t low, int64_t high) const;
    int64_t integer(const char *key, int64_t low, int64_t high, int64_t fallback) const;
    double number(const char *key, double low, double high) const;
    double number(const char *key, double low, double high, double fallback) const;
    bool boolean(const char *key, bool fallback) const;
    std::string text(const char *key, std::string_view fallback) const;
    // One integer, or an array of at most `count` integers. Empty if the key is absent.
    std::vector<int64_t> integers(const char *key, int64_t low, int64_t high, size_t count) const;
    // An array of at most `count` numbers. Empty if the key is absent.
    std::vector<double> numbers(const char *key, double low, double high, size_t count) const;
    std::vector<std::string> texts(const char *key, size_t count) const;
    // Returns the object that is the value of `key`, if there is one.
    std::optional<ConfigReader> object(const char *key) const;
    // Throws if there is a key that is not in the list. Use it for objects in which an unknown key
    // may change the meaning.
    void only(std::initializer_list<std::string_view> keys) const;

    // Throws Error(input) "FILE:LINE: PATH: expected WHAT, found VALUE".
    [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;
    [[noreturn]] void fail(std::string_view key, std::string_view message) const;

  private:
    JsonNode object_;
};

} // namespace keel::model
