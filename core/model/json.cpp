#include "model/json.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <algorithm>
#include <unordered_set>
#include <vector>

namespace keel::model {
namespace {

using nlohmann::json;

// Watches the parser at work and stops it before it has built more than the limits allow.
class Guard {
  public:
    Guard(std::string_view name, const JsonLimits &limits) : name_(name), limits_(limits) {}

    bool operator()(int depth, json::parse_event_t event, json &parsed) {
        switch (event) {
        case json::parse_event_t::object_start:
            enter(depth);
            keys_.emplace_back();
            break;
        case json::parse_event_t::object_end:
            keys_.pop_back();
            break;
        case json::parse_event_t::array_start:
            enter(depth);
            break;
        case json::parse_event_t::value:
            count();
            break;
        case json::parse_event_t::key:
            if (!keys_.back().insert(parsed.get_ref<const std::string &>()).second) {
                throw_error(ErrorKind::input, "{}: the key '{}' stands twice in one object", name_,
                            printable(parsed.get_ref<const std::string &>()));
            }
            break;
        case json::parse_event_t::array_end:
            break;
        }
        return true;
    }

  private:
    void enter(int depth) {
        count();
        if (static_cast<size_t>(depth) >= limits_.depth) {
            throw_error(ErrorKind::input, "{}: expected at most {} nested levels, found more", name_,
                        limits_.depth);
        }
    }
    void count() {
        if (++values_ > limits_.values) {
            throw_error(ErrorKind::input, "{}: expected at most {} values, found more", name_,
                        limits_.values);
        }
    }

    std::string_view name_;
    JsonLimits limits_;
    std::vector<std::unordered_set<std::string>> keys_; // of the objects that are open
    size_t values_ = 0;
};

// nlohmann's text without its "[json.exception...] parse error at line 1, column 2: " front.
std::string_view reason(std::string_view what) {
    const size_t colon = what.find(": ");
    return colon == std::string_view::npos ? what : what.substr(colon + 2);
}

// `byte` counts from 1 and may be one past the end. Columns count bytes from 1.
std::string position(std::string_view text, size_t byte) {
    const std::string_view before = text.substr(0, byte == 0 ? 0 : std::min(byte - 1, text.size()));
    const size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
    const size_t start = before.rfind('\n');
    const size_t column = before.size() - (start == std::string_view::npos ? 0 : start + 1) + 1;
    return fmt::format("line {}, column {}", line, column);
}

} // namespace

json parse_json_object(std::string_view text, std::string_view name, const JsonLimits &limits) {
    if (text.size() > limits.bytes) {
        throw_error(ErrorKind::input, "{}: expected at most {} of JSON, found {}", name,
                    format_bytes(limits.bytes), format_bytes(text.size()));
    }
    json document;
    try {
        Guard guard(name, limits);
        document = json::parse(text, [&](int depth, json::parse_event_t event, json &parsed) {
            return guard(depth, event, parsed);
        });
    } catch (const json::parse_error &error) {
        throw_error(ErrorKind::input, "{}: {}: not valid JSON: {}", name, position(text, error.byte),
                    printable(reason(error.what()), 200));
    } catch (const json::exception &error) { // a number out of range
        throw_error(ErrorKind::input, "{}: not valid JSON: {}", name, printable(reason(error.what()), 200));
    }
    if (!document.is_object()) {
        throw_error(ErrorKind::input, "{}: expected a JSON object, found {}", name, describe(document));
    }
    return document;
}

std::string describe(const json &value) {
    if (value.is_object()) return "an object";
    if (value.is_array()) return fmt::format("an array of {}", value.size());
    if (value.is_string()) return fmt::format("\"{}\"", printable(value.get_ref<const std::string &>(), 60));
    return value.dump();
}

} // namespace keel::model
