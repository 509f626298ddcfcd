#pragma once

#include <string>
#include <string_view>

namespace keel {

// One HTML page that needs no other files. Its scripts draw the page from its data.
struct Page {
    std::string title;
    // "<meta name=generator ...>"; only files with this mark may be overwritten
    std::string_view mark;
    std::string data; // JSON; the scripts read it from the variable `data`
    // The script of this page. It uses page.js, table.js and charts.js from this folder.
    std::string_view script;
    std::string text; // shown if the browser runs no scripts
};

// Encodes a share from 0 to 1 as one of 64 characters. shadeMap() in charts.js decodes it.
char page_shade(double share);

// Returns the HTML of a page. The mark is within the first 512 bytes.
std::string page_html(const Page &page);

} // namespace keel
