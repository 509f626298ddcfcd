#include "eval/ab/report/report.hpp"

#include "ab_files.hpp"
#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/ab/report/data.hpp"
#include "eval/page/page.hpp"
#include "platform/new_file.hpp"

#include <nlohmann/json.hpp>

namespace keel::ab {
namespace {

namespace fs = std::filesystem;

} // namespace

std::string report_html(const Table &table, const Summary &summary, size_t largest) {
    Page page;
    page.title = printable(summary.header.title.empty() ? "keel ab" : summary.header.title, 200);
    page.mark = "<meta name=generator content=\"keel ab\">";
    page.script = page_js;
    page.text = summary_text(summary);
    std::string out;
    for (int level = 0; level < report_levels; ++level) {
        page.data = report_data(table, summary, level);
        out = page_html(page);
        if (out.size() < largest) break;
    }
    return out;
}

std::string write_report(const fs::path &folder) {
    Names names;
    const Table table = load_table(folder, names);
    const Summary summary = summarize(table, names);
    const fs::path place = fs::is_directory(folder) ? folder : folder.parent_path();
    write_whole_file(place / "summary.json",
                     summary_json(summary).dump(1, ' ', false,
                                                nlohmann::ordered_json::error_handler_t::replace) +
                         "\n");
    write_whole_file(place / "report.html", report_html(table, summary));
    return summary_text(summary) + "\nreport: " + printable((place / "report.html").string(), 300) +
           "\n";
}

} // namespace keel::ab
