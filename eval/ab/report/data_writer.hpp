#pragma once

#include "base/json_writer.hpp"
#include "eval/ab/records/table.hpp"

#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Only the files that write the data of the page include this header.
namespace keel::ab {

// A number as JSON. Six digits are enough for a chart.
struct Short {
    std::string json;
};
inline Short short_number(double value) {
    if (!std::isfinite(value)) return {"null"};
    if (value == std::floor(value) && std::abs(value) < 1e15)
        return {std::to_string(static_cast<int64_t>(value))};
    return {fmt::format("{:.6g}", value)};
}
inline Short short_number(const std::optional<double> &value) {
    return value ? short_number(*value) : Short{"null"};
}

// Gives each text a number, so that the data has each text only once. Without numbers, the data
// would repeat each text thousands of times.
class Texts {
  public:
    size_t operator()(const std::string &text) {
        const auto [at, is_new] = numbers_.try_emplace(text, list_.size());
        if (is_new) list_.push_back(text);
        return at->second;
    }
    const std::vector<std::string> &list() const { return list_; }

  private:
    std::map<std::string, size_t> numbers_;
    std::vector<std::string> list_;
};

// Writes lists and tables as JSON. A name is written as an index into the list `names`.
class DataWriter {
  public:
    template <typename Fill> void list(std::string_view name, bool is_wanted, Fill &&fill) {
        out.key(name).begin_array();
        if (is_wanted) fill();
        out.end_array();
    }
    // Writes a table. The first `texts` columns of the table are indices of names.
    template <typename Fill>
    void table(std::string_view name, std::initializer_list<const char *> columns, int texts,
               Fill &&fill) {
        out.key(name).begin_object();
        list("columns", true, [&] {
            for (const char *column : columns) out.value(column);
        });
        out.member("texts", texts);
        list("rows", true, fill);
        out.end_object();
    }

    void put(const Short &number) { out.raw(number.json); }
    void put(bool flag) { out.value(flag ? 1 : 0); }
    void put(const std::vector<std::string> &texts) {
        for (const std::string &text : texts) out.value(text);
    }
    void put(const CellKey &key) {
        out.value(names(key.arm)).value(names(key.budget)).value(names(key.protocol));
        out.value(names(key.task)).value(names(key.metric));
    }
    void put(const PlaceKey &key) {
        const auto &[arm, budget, protocol, task] = key;
        out.value(names(arm)).value(names(budget)).value(names(protocol)).value(names(task));
    }
    template <typename T> void put(const T &value) { out.value(value); }
    template <typename... T> void row(const T &...values) {
        out.begin_array();
        (put(values), ...);
        out.end_array();
    }
    void left_out(const std::string &what) {
        notes.push_back(
            what + " are left out of this page, which would be too large: results.jsonl has them");
    }

    JsonWriter out;
    Texts names;
    std::vector<std::string> notes;
};

// Writes keep maps, kept tokens, timelines, curves and heat maps. `level` has the same meaning as
// in report_data().
void write_pictures(DataWriter &writer, const Table &table, int level);
// Writes the number of each item in each cell.
void write_item_numbers(DataWriter &writer, const Table &table, const Names &names, int level);

} // namespace keel::ab
