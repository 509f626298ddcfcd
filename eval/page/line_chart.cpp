#include "eval/page/line_chart.hpp"

#include "base/display.hpp"
#include "eval/page/html.hpp"
#include "eval/page/text_table.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>

namespace keel {
namespace {

constexpr double left = 60, width = 620, height = 260, top = 10;

// The numbers below the axis: five steps, or with a logarithmic one the points' own.
std::vector<double> ticks_of(const std::vector<LineSeries> &series, ChartScale scale, double most) {
    if (scale == ChartScale::linear) return {0, most / 4, most / 2, most * 3 / 4, most};
    std::set<double> all;
    for (const LineSeries &s : series) {
        for (const auto &[x, y] : s.points)
            if (s.points.size() > 1) all.insert(x);
    }
    return {all.begin(), all.end()};
}

} // namespace

std::string chart_colour(size_t i) {
    constexpr const char *colours[] = {"#3572b0", "#d1722a", "#3b8f4a", "#b03a3a",
                                       "#7a5ba6", "#8a6a4f", "#c0579a", "#5f7d8c"};
    return colours[i % std::size(colours)];
}

std::string line_chart(std::vector<LineSeries> series, ChartScale scale) {
    double least = 1e300, most = scale == ChartScale::linear ? 1 : 0, highest = 0;
    for (LineSeries &s : series) {
        std::sort(s.points.begin(), s.points.end());
        for (const auto &[x, y] : s.points) {
            if (s.points.size() > 1) least = std::min(least, x), most = std::max(most, x);
            highest = std::max(highest, y);
        }
    }
    if (highest <= 0 || most <= 0) return {};
    if (scale == ChartScale::linear) least = 0;
    const auto x = [&](double v) {
        const double share = scale == ChartScale::linear ? v / most
                             : most > least              ? std::log(v / least) / std::log(most / least)
                                                         : 0.5;
        return left + width * share;
    };
    const auto y = [&](double v) { return top + height * (1 - v / highest); };
    std::string out = fmt::format("<svg width=\"1130\" height=\"{:.0f}\" role=img>\n<path d=\"M{:.0f} "
                                  "{:.0f}V{:.0f}H{:.0f}\" fill=\"none\" "
                                  "stroke=\"#999\"/>\n",
                                  std::max(height + 60, 30 + 18.0 * static_cast<double>(series.size())), left,
                                  top, top + height, left + width);
    for (int i = 0; i <= 4; ++i) {
        const double v = highest * i / 4;
        out += fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", left - 6,
                           y(v) + 4, rate_text(v));
    }
    for (const double v : ticks_of(series, scale, most))
        out += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{:.0f}</text>\n", x(v),
                           top + height + 18, v);
    double legend = top + 12;
    for (const LineSeries &s : series) {
        const auto title = [](double value, double at) {
            return fmt::format("{} at {:.0f}", rate_text(value), at);
        };
        if (s.points.size() == 1) {
            const double level = y(s.points[0].second);
            out += fmt::format("<path d=\"M{0:.1f} {1:.1f}H{2:.1f}\" stroke=\"{3}\" stroke-width=\"2\" "
                               "stroke-dasharray=\"6 4\"><title>{4}</title></path>",
                               left, level, left + width, s.colour, rate_text(s.points[0].second));
        } else {
            std::string path;
            for (const auto &[at, value] : s.points)
                path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(at), y(value));
            out += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>", path,
                               s.colour);
            for (const auto &[at, value] : s.points)
                out += fmt::format(
                    "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{}</title></circle>",
                    x(at), y(value), s.colour, title(value, at));
        }
        out += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" style=\"fill:{}\">{}</text>\n", left + width + 20,
                           legend, s.colour, html_escaped(printable(s.name, 200)));
        legend += 18;
    }
    return out + "</svg>\n";
}

} // namespace keel
