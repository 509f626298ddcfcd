#include "server/service/auth.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "text/text_file.hpp"

#include <algorithm>

namespace keel::server {
namespace {

constexpr size_t longest_key = 512;

std::string_view without_blanks(std::string_view text) {
    constexpr std::string_view blanks = " \t\r";
    const size_t first = text.find_first_not_of(blanks);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

std::string_view key_of(const HttpRequest &request) {
    if (const auto authorization = request.header("Authorization")) {
        constexpr std::string_view bearer = "Bearer ";
        if (authorization->size() > bearer.size() &&
            is_same_name(authorization->substr(0, bearer.size()), bearer))
            return without_blanks(authorization->substr(bearer.size()));
    }
    return request.header("X-Api-Key").value_or(std::string_view());
}

} // namespace

bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept {
    unsigned difference = a.size() == b.size() ? 0 : 1;
    for (size_t i = 0; i < a.size(); ++i) {
        const char other = b.empty() ? '\0' : b[i % b.size()];
        difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(other);
    }
    return difference == 0;
}

ApiKeys ApiKeys::load(const std::filesystem::path &path) {
    return parse(read_text_file(path, true), path.string());
}

ApiKeys ApiKeys::parse(std::string_view text, const std::string &name) {
    std::vector<std::string> keys;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = without_blanks(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.empty() || line.front() == '#') continue;
        if (line.size() > longest_key)
            throw_error(ErrorKind::input, "{}: expected keys of at most {} bytes, found {}",
                        printable(name, 400), longest_key, line.size());
        keys.emplace_back(line);
    }
    if (keys.empty())
        throw_error(ErrorKind::input, "{}: expected one key on each line, found no key",
                    printable(name, 400));
    return ApiKeys(std::move(keys));
}

bool ApiKeys::accepts(const HttpRequest &request) const {
    if (keys_.empty()) return true;
    const std::string_view given = key_of(request);
    bool is_known = false;
    // All keys are compared, so that the time does not depend on which key matches.
    for (const std::string &key : keys_) is_known |= equal_in_constant_time(given, key);
    return is_known && !given.empty();
}

} // namespace keel::server
