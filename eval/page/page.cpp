#include "eval/page/page.hpp"

#include "page_files.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace keel {
namespace {

std::string replaced(std::string_view text, std::string_view from, const std::string_view *to) {
    std::string out;
    out.reserve(text.size());
    for (const char c : text) {
        const size_t found = from.find(c);
        if (found == std::string_view::npos) {
            out += c;
        } else {
            out += to[found];
        }
    }
    return out;
}

// Escapes a text for use inside an HTML element.
std::string html_escaped(std::string_view text) {
    constexpr std::string_view entities[] = {"&amp;", "&lt;", "&gt;"};
    return replaced(text, "&<>", entities);
}

// Escapes JSON for use inside a script element, because JSON must not contain the end tag of the
// element.
std::string json_escaped(std::string_view json) {
    constexpr std::string_view escape = "\\u003c";
    return replaced(json, "<", &escape);
}

} // namespace

char page_shade(double share) {
    return page_shades[static_cast<size_t>(std::lround(std::clamp(share, 0.0, 1.0) * 63))];
}

std::string page_html(const Page &page) {
    const std::string title = html_escaped(page.title);
    return fmt::format(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>{}\n"
        "<meta name=viewport content=\"width=device-width,initial-scale=1\">\n"
        // The page cannot load or send anything, even if a script has a mistake.
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none';style-src "
        "'unsafe-inline';script-src "
        "'unsafe-inline'\">\n<title>{}</title>\n<style>\n{}{}</style></head>"
        "<body>\n<main id=page><noscript><h1>{}</h1><p>This page needs JavaScript.</p><pre>{}</pre>"
        "</noscript></main>\n<script type=\"application/json\" id=data>{}</script>\n"
        "<script>(function(){{\"use strict\";\n{}\n{}\n{}\n{}}})();</script>\n</body></html>\n",
        page.mark, title, page_css, page.style, title, html_escaped(page.text),
        json_escaped(page.data), page_js, table_js, charts_js, page.script);
}

} // namespace keel
