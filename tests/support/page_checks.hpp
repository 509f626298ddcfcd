#pragma once

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace keel::test {

// Returns the data from which a page draws.
inline nlohmann::json data_of(const std::string &html) {
    const std::string begin = "<script type=\"application/json\" id=data>";
    const size_t at = html.find(begin);
    REQUIRE(at != std::string::npos);
    const size_t from = at + begin.size();
    return nlohmann::json::parse(html.substr(from, html.find("</script>", from) - from));
}

// Checks that a page loads nothing from elsewhere, and has one style, its data and one script.
inline void check_offline(const std::string &html) {
    for (const char *outside : {"http:", "https:", "src=", "@import", "url(", "<link"}) {
        INFO(outside);
        size_t count = 0;
        for (size_t at = html.find(outside); at != std::string::npos;
             at = html.find(outside, at + 1))
            // The namespace of SVG is a name and not an address.
            count += html.compare(at, 26, "http://www.w3.org/2000/svg") == 0 ? 0 : 1;
        CHECK(count == 0);
    }
    CHECK(html.find("default-src 'none'") != std::string::npos);
    CHECK(html.find("name=viewport") != std::string::npos);
    CHECK(html.find("prefers-color-scheme: dark") != std::string::npos);
    size_t ends = 0;
    for (size_t at = html.find("</script>"); at != std::string::npos;
         at = html.find("</script>", at + 1))
        ++ends;
    CHECK(ends == 2);
}

} // namespace keel::test
