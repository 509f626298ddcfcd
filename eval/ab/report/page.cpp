#include "eval/ab/report/report.hpp"

#include "ab_files.hpp"
#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/ab/report/answer.hpp"
#include "eval/ab/report/data.hpp"
#include "eval/ab/run/shard.hpp"
#include "eval/page/page.hpp"
#include "platform/clock.hpp"
#include "platform/new_file.hpp"

#include <chrono>
#include <memory>

#include <nlohmann/json.hpp>

namespace keel::ab {
namespace {

namespace fs = std::filesystem;

// Returns the script of the page. The parts of the script are in order: each part comes after the
// parts that it uses. main.js is the last part and draws the page.
std::string page_script() {
    std::string out;
    for (const std::string_view part :
         {names_js, answer_js, quality_js, forest_js, contrasts_js, multiples_js, tokens_js,
          pictures_js, tables_js, methods_js, main_js})
        (out += part) += '\n';
    return out;
}

} // namespace

std::string report_html(const Table &table, const Names &names, const Summary &summary,
                        size_t largest) {
    Page page;
    page.title = printable(summary.header.title.empty() ? "keel ab" : summary.header.title, 200);
    page.mark = "<meta name=generator content=\"keel ab\">";
    const std::string script = page_script();
    page.script = script;
    page.style = report_css;
    for (const std::string &sentence : answer_sentences(summary)) page.text += sentence + "\n";
    page.text += "\n" + summary_text(summary);
    std::string out;
    for (int level = 0; level < report_levels; ++level) {
        page.data = report_data(table, names, summary, level);
        out = page_html(page);
        if (out.size() < largest) break;
    }
    return out;
}

std::string write_report(const fs::path &folder) {
    Names names;
    const Table table = load_table(folder, names);
    const fs::path place = fs::is_directory(folder) ? folder : folder.parent_path();
    const bool has_rule = table.header.plan && table.header.statistics.looks != Looks::none;
    std::unique_ptr<FileLock> lock; // this process must record its look before another process
                                    // makes a look
    if (has_rule) lock = std::make_unique<FileLock>(place / LookBook::file_name, true);
    LookBook looks = has_rule ? LookBook::read(place, table.header.plan->hash) : LookBook("");
    const Summary summary = summarize(table, names, &looks);
    if (has_rule) looks.record(place, utc_text(std::chrono::system_clock::now()));
    lock.reset();
    write_whole_file(place / "summary.json",
                     summary_json(summary).dump(1, ' ', false,
                                                nlohmann::ordered_json::error_handler_t::replace) +
                         "\n");
    write_whole_file(place / "report.html", report_html(table, names, summary));
    return summary_text(summary) + "\nreport: " + printable((place / "report.html").string(), 300) +
           "\n";
}

} // namespace keel::ab
