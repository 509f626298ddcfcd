#pragma once

#include <string>
#include <string_view>

namespace keel {

// One HTML page that needs no other files. The scripts of the page draw the page from `data`.
struct Page {
    std::string title;
    // "<meta name=generator ...>"; Keel is allowed to overwrite only files with this mark
    std::string_view mark;
    std::string data; // JSON; the scripts read this JSON from the variable `data`
    // The script of this page. The script uses page.js, table.js and charts.js from this folder.
    std::string_view script;
    std::string text;            // the browser shows this text if it runs no scripts
    std::string_view style = {}; // the page's own CSS, after page.css
};

// The characters for shares, from 0 (none) to _ (all). shadeMap() of charts.js reads these
// characters.
inline constexpr std::string_view page_shades =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
// A share from 0 to 1 as one of these 64 characters.
char page_shade(double share);

// Returns the HTML of a page. The mark is within the first 512 bytes.
std::string page_html(const Page &page);

} // namespace keel
