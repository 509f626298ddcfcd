#pragma once

#include "base/error.hpp"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel {

// Limits for untrusted JSON. The tree of a document takes about 100 bytes for each value.
struct JsonLimits {
    size_t bytes = size_t{4} << 20;
    size_t depth = 32;       // depth of nested arrays and objects
    size_t values = 200'000; // number of values; keys do not count
    // true: the last value of a repeated key counts; false: a repeated key is an error
    bool repeated_keys = false;
};

class JsonNode;

// An error about a value of a JSON document. Its message is "PLACE: PATH: TEXT". PLACE is the name
// of the document with the line. PATH is the value's path, like a.b[3]; it is empty for the root.
class JsonError : public Error {
  public:
    JsonError(std::string place, std::string path, std::string text);

    const std::string &place() const noexcept { return place_; }
    const std::string &path() const noexcept { return path_; }
    const std::string &text() const noexcept { return text_; } // the message without place and path

  private:
    std::string place_, path_, text_;
};

// An untrusted JSON text, parsed within limits.
class JsonDocument {
  public:
    // Messages begin with `name` (the path of the file) and the line. `line` is the line number in
    // the file at which `text` begins. If `line` is 0, messages have no lines. `text` must outlive
    // the document. Throws Error(input) "NAME:LINE:COLUMN: not valid JSON: ..." for bad syntax and
    // bad UTF-8. Throws Error(input) "NAME: expected ..., found ..." if a limit is exceeded.
    JsonDocument(std::string_view text, std::string name, const JsonLimits &limits = {},
                 size_t line = 1);
    // Makes a document for a tree that the program built itself. Messages have no lines.
    static JsonDocument of_tree(nlohmann::json tree, std::string name);
    JsonDocument(JsonDocument &&) noexcept;
    ~JsonDocument();

    // The root. Nodes hold a pointer to the document, so the document must outlive them and must
    // not be moved.
    JsonNode root() const;
    JsonNode object() const; // the root; throws if it is not an object
    nlohmann::json take() &&;
    const std::string &name() const { return name_; }

  private:
    friend class JsonNode;
    JsonDocument() = default;
    // place(): "NAME:LINE" of a value. path(): the path of a value in the tree.
    std::string place(const nlohmann::json &value) const;
    std::string path(const nlohmann::json &value) const;

    std::string_view text_;
    std::string name_;
    size_t line_ = 0;
    std::unique_ptr<nlohmann::json> tree_;
};

// A value of a document. Its line is searched only if a message needs it.
class JsonNode {
  public:
    bool is_null() const;
    bool is_flag() const;
    bool is_number() const;
    bool is_text() const;
    bool is_array() const;
    bool is_object() const;

    // Throws JsonError.
    [[noreturn]] void fail(std::string_view message) const;
    // Throws JsonError about the member `key`, which can be absent.
    [[noreturn]] void fail(std::string_view key, std::string_view message) const;
    // Throws an error with the message "...: expected WHAT, found VALUE".
    [[noreturn]] void expected(std::string_view what) const;
    // The value in the form that messages show. The text is short, printable and has one line.
    std::string shown() const;
    // The place of the value without its line: "NAME: a.b[3]". Objects that are made from the value
    // use this text to name their source.
    std::string where() const;

    // The next functions are for objects. Each of them throws if the value is not an object. A
    // member that is null counts as absent.
    std::optional<JsonNode> find(std::string_view key) const;
    JsonNode at(std::string_view key) const;
    bool has(std::string_view key) const; // true also if the member is null
    bool flag_or(std::string_view key, bool otherwise) const;
    std::vector<std::pair<std::string_view, JsonNode>> members() const;
    // Throws for a key that is not in `keys`, and suggests the nearest key of `keys`.
    void only(const std::vector<std::string> &keys) const;

    // The next functions are for arrays. Each of them throws if the value is not an array.
    size_t size() const;
    size_t size(size_t most) const; // throws if there are more than `most` elements
    JsonNode element(size_t index) const;

    // Each of the next functions throws if the value has another type or is out of range.
    const std::string &text(size_t longest = SIZE_MAX) const; // `longest` is in bytes
    bool flag() const;
    int64_t integer(int64_t low, int64_t high) const;
    uint64_t natural(uint64_t low, uint64_t high) const;
    double number(double low, double high) const;
    double number() const; // any number

    const nlohmann::json &raw() const { return *value_; }

  private:
    friend class JsonDocument;
    JsonNode(const JsonDocument &document, const nlohmann::json &value)
        : document_(&document), value_(&value) {}
    const nlohmann::json *member(std::string_view key) const; // NULL if absent

    const JsonDocument *document_;
    const nlohmann::json *value_;
};

} // namespace keel
