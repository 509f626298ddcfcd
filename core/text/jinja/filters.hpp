#pragma once

#include "text/jinja/arguments.hpp"

#include <map>
#include <string_view>
#include <vector>

namespace keel::jinja {

struct Filter {
    std::vector<std::string_view> parameters;
    Value (*run)(Evaluator &, const Value &, const Bound &);
};
using FilterTable = std::map<std::string, Filter, std::less<>>;

// Filters that take any number of arguments.
using OpenFilterTable =
    std::map<std::string, Value (*)(Evaluator &, const Value &, Arguments &), std::less<>>;

const FilterTable &value_filters();
const FilterTable &list_filters();
const OpenFilterTable &list_open_filters();

} // namespace keel::jinja
