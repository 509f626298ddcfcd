#pragma once

#include "base/error.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace keel {

// Parses the text of a JSON file that nobody vouches for: at most 64 levels deep and 8 million values, so that its tree
// stays within a few hundred MB. Errors name the file, line and column.
nlohmann::json parse_untrusted_json(std::string_view text, std::string_view file);

// Text from a file as an error message shows it: quoted, escaped, at most 60 bytes of it.
std::string quote_text(std::string_view text);

// A value of a JSON file together with its place in it, so that every complaint can say where: "FILE: a.b[3]: ...".
// Holds references: the tree and `file` must outlive it.
class JsonNode {
  public:
    JsonNode(const nlohmann::json &value, std::string_view file, std::string place = {})
        : value_(&value), file_(file), place_(std::move(place)) {}

    const nlohmann::json &raw() const noexcept { return *value_; }
    // "FILE: a.b[3]"
    std::string where() const;
    [[noreturn]] void fail(std::string_view message) const;

    // A member that is absent or null counts as not there. Both need this node to be an object.
    std::optional<JsonNode> find(const char *key) const;
    JsonNode at(const char *key) const;
    // An array's element.
    JsonNode element(std::size_t index) const;
    std::size_t array_size() const; // fails if this is not an array

    const std::string &text() const;
    bool flag() const;
    // An integer in [low, high].
    std::int64_t integer(std::int64_t low, std::int64_t high) const;
    // Member `key`, or the default if it is not there.
    bool flag_or(const char *key, bool fallback) const;
    // The member "type" of a component object.
    const std::string &type() const { return at("type").text(); }

    [[noreturn]] void expected(std::string_view what) const;

  private:
    const nlohmann::json *value_;
    std::string_view file_;
    std::string place_;
};

} // namespace keel
