#pragma once

#include <string>
#include <utility>
#include <vector>

namespace keel {

// A line of a chart. One point alone is drawn as a level across the whole width.
struct LineSeries {
    std::string name;
    std::string colour;                            // "#3572b0"
    std::vector<std::pair<double, double>> points; // x, y; y from 0
};

enum class ChartScale { linear, logarithmic }; // of x; logarithmic: x of all points is above 0

// The chart as an SVG element with ticks, names beside it and values on hovering; empty if there is nothing to draw.
std::string line_chart(std::vector<LineSeries> series, ChartScale scale);

// Colours that can be told apart, also by people who see few of them; the i-th, over again behind the last.
std::string chart_colour(size_t i);

} // namespace keel
