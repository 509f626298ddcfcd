#include "text/json_node.hpp"

#include "base/display.hpp"

namespace keel {

namespace {

constexpr std::size_t max_depth = 64;
constexpr std::size_t max_values = 8'000'000;

// Counts levels and values without building anything. What is not JSON is left for the parser to complain about.
void check_extent(std::string_view text, std::string_view file) {
    std::size_t depth = 0;
    std::size_t values = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\')
                ++i;
            else if (c == '"')
                in_string = false;
            continue;
        }
        if (c == '"') in_string = true;
        if (c == '[' || c == '{') {
            ++values;
            if (++depth > max_depth)
                throw_error(ErrorKind::input, "{}: nested more than {} levels deep at byte {}", file,
                            max_depth, i);
        }
        if ((c == ']' || c == '}') && depth > 0) --depth;
        if (c == ',' && ++values > max_values)
            throw_error(ErrorKind::input, "{}: more than {} values; no tokenizer has as many", file,
                        max_values);
    }
}

} // namespace

nlohmann::json parse_untrusted_json(std::string_view text, std::string_view file) {
    check_extent(text, file);
    try {
        return nlohmann::json::parse(text.begin(), text.end());
    } catch (const nlohmann::json::exception &error) {
        // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."; the end may quote a whole string
        std::string_view message = error.what();
        if (const auto bracket = message.find("] "); bracket != std::string_view::npos)
            message.remove_prefix(bracket + 2);
        throw_error(ErrorKind::input, "{}: not valid JSON: {}", file, printable(message, 200));
    }
}

std::string quote_text(std::string_view text) {
    return fmt::format("'{}'", printable(text, 60));
}

std::string JsonNode::where() const {
    return place_.empty() ? std::string(file_) : fmt::format("{}: {}", file_, place_);
}

void JsonNode::fail(std::string_view message) const {
    throw_error(ErrorKind::input, "{}: {}", where(), message);
}

void JsonNode::expected(std::string_view what) const {
    std::string found = value_->type_name();
    if (value_->is_string()) found = quote_text(value_->get_ref<const std::string &>());
    if (value_->is_number() || value_->is_boolean()) found = value_->dump();
    fail(fmt::format("expected {}, found {}", what, found));
}

std::optional<JsonNode> JsonNode::find(const char *key) const {
    if (!value_->is_object()) expected("an object");
    const auto it = value_->find(key);
    if (it == value_->end() || it->is_null()) return std::nullopt;
    return JsonNode(*it, file_, place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key));
}

JsonNode JsonNode::at(const char *key) const {
    if (auto node = find(key)) return *node;
    fail(fmt::format("'{}' is missing", key));
}

std::size_t JsonNode::array_size() const {
    if (!value_->is_array()) expected("a list");
    return value_->size();
}

JsonNode JsonNode::element(std::size_t index) const {
    if (index >= array_size()) fail(fmt::format("has no element {}", index));
    return {(*value_)[index], file_, fmt::format("{}[{}]", place_, index)};
}

const std::string &JsonNode::text() const {
    if (!value_->is_string()) expected("a string");
    return value_->get_ref<const std::string &>();
}

bool JsonNode::flag() const {
    if (!value_->is_boolean()) expected("true or false");
    return value_->get<bool>();
}

bool JsonNode::flag_or(const char *key, bool fallback) const {
    const auto node = find(key);
    return node ? node->flag() : fallback;
}

std::int64_t JsonNode::integer(std::int64_t low, std::int64_t high) const {
    const std::string range = fmt::format("an integer from {} to {}", low, high);
    if (!value_->is_number_integer()) expected(range);
    // an unsigned value above the signed range would come out negative
    if (value_->is_number_unsigned() && value_->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
        expected(range);
    const auto number = value_->get<std::int64_t>();
    if (number < low || number > high) expected(range);
    return number;
}

} // namespace keel
