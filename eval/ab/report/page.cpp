#include "eval/ab/report/report.hpp"

#include "ab_files.hpp"
#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/ab/report/data.hpp"
#include "eval/page/page.hpp"
#include "platform/new_file.hpp"

#include <nlohmann/json.hpp>

namespace keel {
namespace {

namespace fs = std::filesystem;

} // namespace

std::string ab_report_html(const AbTable &table, const AbSummary &summary, size_t largest) {
    Page page;
    page.title = printable(summary.header.title.empty() ? "keel ab" : summary.header.title, 200);
    page.mark = "<meta name=generator content=\"keel ab\">";
    page.script = page_js;
    page.text = ab_summary_text(summary);
    std::string out;
    for (int level = 0; level < ab_report_levels; ++level) {
        page.data = ab_report_data(table, summary, level);
        out = page_html(page);
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
                     ab_summary_json(summary).dump(
                         1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                         "\n");
    write_whole_file(place / "report.html", ab_report_html(table, summary));
    return ab_summary_text(summary) +
           "\nreport: " + printable((place / "report.html").string(), 300) + "\n";
}

} // namespace keel
