#include "eval/ab/report/report.hpp"

#include "ab_files.hpp"
#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/ab/report/data.hpp"
#include "eval/page/html.hpp"
#include "platform/new_file.hpp"

#include <nlohmann/json.hpp>

namespace keel {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// JSON inside a script element: nothing in it may look like the element's end.
std::string embedded(const Json &json) {
    const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    std::string out;
    out.reserve(text.size());
    for (const char c : text) {
        if (c == '<') {
            out += "\\u003c";
        } else {
            out += c;
        }
    }
    return out;
}

std::string page(const std::string &title, const std::string &verdicts, const std::string &data) {
    std::string out = "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
                      "<meta name=viewport content=\"width=device-width,initial-scale=1\">\n"
                      // Even a mistake in this program cannot make the page fetch or send anything.
                      "<meta http-equiv=Content-Security-Policy content=\"default-src 'none';style-src "
                      "'unsafe-inline';script-src 'unsafe-inline'\">\n<title>";
    out += html_escaped(title);
    out += "</title>\n<style>\n";
    out += report_css;
    out += "</style></head><body>\n<main id=page><noscript><h1>";
    out += html_escaped(title);
    out += "</h1><p>The plots of this page need JavaScript. The verdicts:</p><pre>";
    out += html_escaped(verdicts);
    out += "</pre></noscript></main>\n<script type=\"application/json\" id=data>";
    out += data;
    out += "</script>\n<script>(function(){\"use strict\";\n\n";
    out += charts_js;
    out += "\n";
    out += report_js;
    out += "})();</script>\n</body></html>\n";
    return out;
}

} // namespace

std::string ab_report_html(const AbTable &table, const AbSummary &summary, size_t largest) {
    const std::string title = printable(summary.header.title.empty() ? "keel ab" : summary.header.title, 200);
    const std::string verdicts = ab_summary_text(summary);
    std::string out;
    for (int level = 0; level < ab_report_levels; ++level) {
        out = page(title, verdicts, embedded(ab_report_data(table, summary, level)));
        if (out.size() < largest) break;
    }
    return out;
}

std::string write_ab_report(const fs::path &folder) {
    AbNames names;
    const AbTable table = load_ab_table(folder, names);
    const AbSummary summary = summarize_ab(table, names);
    const fs::path place = fs::is_directory(folder) ? folder : folder.parent_path();
    write_whole_file(place / "summary.json",
                     ab_summary_json(summary).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
    write_whole_file(place / "report.html", ab_report_html(table, summary));
    return ab_summary_text(summary) + "\nreport: " + printable((place / "report.html").string(), 300) + "\n";
}

} // namespace keel
