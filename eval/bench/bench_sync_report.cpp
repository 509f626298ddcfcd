#include "base/display.hpp"
#include "eval/bench/bench_sync.hpp"
#include "eval/page/html.hpp"
#include "eval/page/line_chart.hpp"
#include "eval/page/text_table.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::vector<std::string>> rows_of(const SyncReport &report) {
    std::vector<std::vector<std::string>> rows{
        {"sync", "tokens/s", "range", "x eager", "95%", "submits", "waits"}};
    for (const SyncResult &r : report.results) {
        const std::string name = to_string(r.strategy);
        rows.push_back({name + (name == report.automatic ? " (auto)" : ""), rate_text(r.rate.median),
                        rate_text(r.rate.min) + ".." + rate_text(r.rate.max),
                        fmt::format("{:.2f}", r.ratio.median), fmt::format("{:.2f}..{:.2f}", r.low, r.high),
                        fmt::format("{:.1f}", r.submits), fmt::format("{:.1f}", r.waits)});
    }
    return rows;
}

std::string heading(const SyncReport &r) {
    return fmt::format("backend: {} on '{}': {}; auto is {}\nmodel: {}, weights {}; {:.0f} ops a token\n"
                       "{} tokens at a depth of {}, {} rounds on {}\n",
                       r.backend, r.device, r.description, r.automatic, r.model, r.weights, r.ops, r.decode,
                       r.depth, r.repeat, r.cpu.empty() ? "an unknown processor" : r.cpu);
}

} // namespace

std::string sync_table(const SyncReport &report, std::string_view version) {
    return fmt::format("keel {}\n{}\n{}", version, heading(report), aligned_table(rows_of(report)));
}

Json sync_json(const SyncReport &report, std::string_view version) {
    Json results = Json::array();
    const auto spread = [](const Spread &s) {
        return Json{{"median", s.median},
                    {"deviation", s.deviation},
                    {"min", s.min},
                    {"max", s.max},
                    {"samples", s.samples}};
    };
    for (const SyncResult &r : report.results)
        results.push_back({{"sync", to_string(r.strategy)},
                           {"tokens_per_second", spread(r.rate)},
                           {"ratio_to_eager", spread(r.ratio)},
                           {"ratio_low", r.low},
                           {"ratio_high", r.high},
                           {"submits_per_token", r.submits},
                           {"waits_per_token", r.waits}});
    return {{"version", version},
            {"backend",
             {{"plugin", report.backend},
              {"device", report.device},
              {"description", report.description},
              {"auto", report.automatic}}},
            {"machine", {{"cpu", report.cpu}}},
            {"model", {{"path", report.model}, {"weights", report.weights}}},
            {"ops_per_token", report.ops},
            {"decode", report.decode},
            {"depth", report.depth},
            {"repeat", report.repeat},
            {"results", std::move(results)}};
}

std::string sync_html(const SyncReport &report, std::string_view version) {
    std::vector<LineSeries> series;
    LineSeries batched{"batched: N, over N", chart_colour(0), {}};
    for (const SyncResult &r : report.results) {
        if (r.strategy.kind == SyncStrategy::Kind::batched) {
            batched.points.emplace_back(r.strategy.ops, r.rate.median);
        } else {
            series.push_back({to_string(r.strategy), chart_colour(series.size() + 1), {{1, r.rate.median}}});
        }
    }
    series.insert(series.begin(), std::move(batched));
    const auto text = [](const std::string &line) { return html_escaped(printable(line, 500)); };
    std::string out = fmt::format(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>{}<title>keel bench sync</title><style>\n"
        "body{{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1200px;padding:0 "
        "1em;color:#222;background:#fff}}\n"
        "table{{border-collapse:collapse;font-variant-numeric:tabular-nums}}td,th{{padding:3px "
        "9px;border-bottom:1px solid "
        "#ddd;text-align:right}}td:first-child,th:first-child{{text-align:left}}svg text{{font:12px "
        "system-ui,sans-serif;fill:#222}}\n"
        "@media(prefers-color-scheme:dark){{body{{background:#181818;color:#ddd}}svg text{{fill:#ddd}}}}\n"
        "</style></head>\n<body><h1>Sync strategies, decoding tokens/s</h1>\n<p>keel {}</p>\n",
        sync_html_mark, text(std::string(version)));
    const std::string lines = heading(report);
    for (size_t at = 0; at < lines.size();) {
        const size_t end = lines.find('\n', at);
        out += "<p>" + text(lines.substr(at, end - at)) + "</p>\n";
        at = end + 1;
    }
    out += line_chart(std::move(series), ChartScale::logarithmic);
    out += "<table>\n";
    const auto rows = rows_of(report);
    for (size_t i = 0; i < rows.size(); ++i) {
        out += "<tr>";
        for (const std::string &cell : rows[i])
            out += fmt::format("<{0}>{1}</{0}>", i == 0 ? "th" : "td", text(cell));
        out += "</tr>\n";
    }
    return out + "</table></body></html>\n";
}

} // namespace keel
