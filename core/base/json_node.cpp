// Part of JsonNode: reads and checks values of a JSON document.
#include "base/json_reader.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

using Json = nlohmann::json;

std::string range_text(const char *what, const std::string &low, const std::string &high) {
    return fmt::format("{} from {} to {}", what, low, high);
}

} // namespace

bool JsonNode::is_null() const { return value_->is_null(); }
bool JsonNode::is_flag() const { return value_->is_boolean(); }
bool JsonNode::is_number() const { return value_->is_number(); }
bool JsonNode::is_text() const { return value_->is_string(); }
bool JsonNode::is_array() const { return value_->is_array(); }
bool JsonNode::is_object() const { return value_->is_object(); }

JsonError::JsonError(std::string place, std::string path, std::string text)
    : Error(ErrorKind::input,
            fmt::format("{}: {}{}{}", place, path, path.empty() ? "" : ": ", text)),
      place_(std::move(place)), path_(std::move(path)), text_(std::move(text)) {}

void JsonNode::fail(std::string_view message) const {
    throw JsonError(document_->place(*value_), document_->path(*value_), std::string(message));
}

void JsonNode::fail(std::string_view key, std::string_view message) const {
    if (const Json *value = member(key)) JsonNode(*document_, *value).fail(message);
    std::string path = document_->path(*value_);
    if (!path.empty()) path += '.';
    throw JsonError(document_->place(*value_), path + printable(key), std::string(message));
}

void JsonNode::expected(std::string_view what) const {
    fail(fmt::format("expected {}, found {}", what, shown()));
}

std::string JsonNode::where() const {
    const std::string path = document_->path(*value_);
    return document_->name_ + (path.empty() ? "" : ": ") + path;
}

std::string JsonNode::shown() const {
    if (is_object()) return "an object";
    if (is_array()) return fmt::format("an array of {}", value_->size());
    if (is_text()) return fmt::format("\"{}\"", printable(text(), 60));
    return value_->dump();
}

const Json *JsonNode::member(std::string_view key) const {
    if (!is_object()) expected("an object");
    const auto found = value_->find(std::string(key));
    return found == value_->end() ? nullptr : &*found;
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
    const Json *found = member(key);
    if (found == nullptr || found->is_null()) return std::nullopt;
    return JsonNode(*document_, *found);
}

JsonNode JsonNode::at(std::string_view key) const {
    if (const auto node = find(key)) return *node;
    std::vector<std::string> found;
    for (const auto &member : members()) found.emplace_back(member.first);
    const std::string near = nearest_word(key, found);
    fail(near.empty() || near == key
             ? fmt::format("'{}' is missing", key)
             : fmt::format("'{0}' is missing, found '{1}'; did you mean '{0}'?", key,
                           printable(near, 60)));
}

bool JsonNode::has(std::string_view key) const { return member(key) != nullptr; }

bool JsonNode::flag_or(std::string_view key, bool otherwise) const {
    const auto node = find(key);
    return node ? node->flag() : otherwise;
}

std::vector<std::pair<std::string_view, JsonNode>> JsonNode::members() const {
    if (!is_object()) expected("an object");
    std::vector<std::pair<std::string_view, JsonNode>> out;
    out.reserve(value_->size());
    for (auto it = value_->begin(); it != value_->end(); ++it)
        out.emplace_back(it.key(), JsonNode(*document_, *it));
    return out;
}

void JsonNode::only(const std::vector<std::string> &keys) const {
    for (const auto &[key, value] : members()) {
        if (std::find(keys.begin(), keys.end(), key) == keys.end())
            value.fail(fmt::format("unknown key{}; the keys are {}", did_you_mean(key, keys),
                                   fmt::join(keys, ", ")));
    }
}

size_t JsonNode::size() const {
    if (!is_array()) expected("an array");
    return value_->size();
}

size_t JsonNode::size(size_t most) const {
    if (size() > most) expected(fmt::format("an array of at most {}", most));
    return size();
}

JsonNode JsonNode::element(size_t index) const {
    if (index >= size()) fail(fmt::format("has no element {}", index));
    return {*document_, (*value_)[index]};
}

const std::string &JsonNode::text(size_t longest) const {
    if (!is_text()) expected("a string");
    const auto &found = value_->get_ref<const std::string &>();
    if (found.size() > longest)
        fail(fmt::format("expected a string of at most {} bytes, found {}", longest, found.size()));
    return found;
}

bool JsonNode::flag() const {
    if (!is_flag()) expected("true or false");
    return value_->get<bool>();
}

int64_t JsonNode::integer(int64_t low, int64_t high) const {
    // get<int64_t>() would return a negative number for an unsigned value above INT64_MAX.
    const bool fits = value_->is_number_unsigned() ? value_->get<uint64_t>() <= uint64_t{INT64_MAX}
                                                   : value_->is_number_integer();
    if (!fits || value_->get<int64_t>() < low || value_->get<int64_t>() > high)
        expected(range_text("an integer", fmt::to_string(low), fmt::to_string(high)));
    return value_->get<int64_t>();
}

uint64_t JsonNode::natural(uint64_t low, uint64_t high) const {
    if (!value_->is_number_unsigned() || value_->get<uint64_t>() < low ||
        value_->get<uint64_t>() > high)
        expected(range_text("an integer", fmt::to_string(low), fmt::to_string(high)));
    return value_->get<uint64_t>();
}

double JsonNode::number() const {
    if (!is_number()) expected("a number");
    return value_->get<double>();
}

double JsonNode::number(double low, double high) const {
    const double found = is_number() ? value_->get<double>() : 0;
    if (!is_number() || !(found >= low && found <= high))
        expected(range_text("a number", fmt::to_string(low), fmt::to_string(high)));
    return found;
}

} // namespace keel
