#include "bounded_json.hpp"

#include <keel/sdk_policy.hpp>

#include <algorithm>
#include <fstream>
#include <set>
#include <string_view>

namespace keel_file {
namespace {

using nlohmann::json;

std::string read_file(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) refuse(path, "cannot be opened; check the path");
    std::string text(max_bytes + 1, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (in.bad()) refuse(path, "cannot be read; expected a JSON file");
    text.resize(static_cast<size_t>(in.gcount()));
    if (text.size() > max_bytes)
        refuse(path, "is larger than the 16 MiB that a budget file may have");
    return text;
}

// Returns ":LINE", the line number of byte `at` of the text. Bytes are counted from 0.
std::string line_of(std::string_view text, size_t at) {
    const std::string_view before = text.substr(0, at);
    return ":" + std::to_string(1 + std::count(before.begin(), before.end(), '\n'));
}

// Throws Failure if the text has too many values or is nested too deeply. So the parser never
// builds a large tree. The check counts brackets and commas outside of strings. If the text is not
// valid JSON, the counts can be wrong. Then the parser refuses the text.
void check_bounds(const std::string &path, std::string_view text) {
    size_t depth = 0, values = 1;
    bool in_string = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            in_string = c != '"';
            continue;
        }
        in_string = c == '"';
        if (c == '[' || c == '{') ++depth;
        if ((c == ']' || c == '}') && depth > 0) --depth;
        if (c == '[' || c == '{' || c == ',') ++values;
        if (depth > max_depth)
            refuse(path,
                   "expected at most " + std::to_string(max_depth) + " nested levels, found more",
                   line_of(text, i));
        if (values > max_values)
            refuse(path, "expected at most " + std::to_string(max_values) + " values, found more",
                   line_of(text, i));
    }
}

// Returns the part REASON of a parser message. The messages look like
// "[json.exception.parse_error.101] parse error at line 1, column 2: REASON" or
// "[json.exception.out_of_range.406] REASON".
std::string reason_of(const json::exception &error) {
    std::string reason = error.what();
    reason.erase(0, reason.find("] ") + 2);
    if (reason.rfind("parse error at", 0) == 0) reason.erase(0, reason.find(": ") + 2);
    return "not valid JSON: " + reason.substr(0, 100);
}

[[noreturn]] void refuse_syntax(const std::string &path, std::string_view text,
                                const json::parse_error &error) {
    const size_t at = std::min(error.byte == 0 ? 0 : error.byte - 1, text.size());
    const size_t line_begin = text.substr(0, at).rfind('\n') + 1; // 0 for the first line
    refuse(path, reason_of(error), line_of(text, at) + ":" + std::to_string(at - line_begin + 1));
}

} // namespace

json read_bounded_json(const std::string &path) {
    const std::string text = read_file(path);
    check_bounds(path, text);
    std::set<std::string> keys; // keys of the JSON object
    const auto check_key = [&](int depth, json::parse_event_t event, json &value) {
        if (event != json::parse_event_t::key || depth != 1) return true;
        const auto &key = value.get_ref<const std::string &>();
        if (!keys.insert(key).second)
            refuse(path, "the key \"" + key.substr(0, 40) + "\" occurs twice");
        return true;
    };
    try {
        return json::parse(text, check_key);
    } catch (const json::parse_error &error) {
        refuse_syntax(path, text, error);
    } catch (const json::exception &error) { // for example a number that is out of range
        refuse(path, reason_of(error));
    }
}

void refuse(const std::string &path, const std::string &what, const std::string &place_in_file) {
    const std::string shown = path.size() > 120 ? "..." + path.substr(path.size() - 117) : path;
    throw keel::sdk::Failure(KEEL_E_INVALID_ARG, "%s%s: %s", shown.c_str(), place_in_file.c_str(),
                             what.c_str());
}

} // namespace keel_file
