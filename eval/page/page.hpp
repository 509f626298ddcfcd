#pragma once

#include <string>
#include <string_view>

namespace keel {

// One HTML page without external files. Its scripts draw it from its data.
struct Page {
    std::string title;
    std::string_view mark; // "<meta name=generator ...>"; tells the page from a user's own file
    std::string data;      // JSON, which the scripts find in `data`
    // The page's own script; it uses page.js, table.js and charts.js of this folder.
    std::string_view script;
    std::string text; // shown instead if the browser runs no scripts
};

// A share from 0 to 1 as one of 64 characters. shadeMap() of charts.js reads them.
char page_shade(double share);

// The mark is within the first 512 bytes.
std::string page_html(const Page &page);

} // namespace keel
