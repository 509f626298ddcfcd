#include "eval/ab/records/table.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <system_error>

namespace keel::ab {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_warnings = 1000, most_cells = 100'000;

// The number of one record, before the average over seeds.
struct Row {
    uint32_t item = 0, cluster = 0;
    uint64_t seed = 0;
    double value = 0;
    int64_t length = 0;
    float depth = -1;
    uint32_t expected = 0;
};

class Loader {
  public:
    Loader(Table &table, Names &names) : table_(table), names_(names) {}

    void take(Record &&record) {
        std::visit([this](auto &&one) { add(std::move(one)); }, std::move(record));
    }

    void finish() {
        for (size_t i = 0; i < table_.cells.size(); ++i) settle(table_.cells[i], rows_[i]);
        sort_cells();
        for (auto &[key, map] : table_.keep_maps)
            for (float &bin : map.bins) bin /= static_cast<float>(map.items);
    }

  private:
    static PlaceKey place_of(const Place &p) { return {p.arm, p.budget, p.protocol, p.task}; }

    size_t cell_of(const Item &i) {
        // Two records in a row usually belong to cells that differ only in the metric.
        CellKey key{i.arm, i.budget, i.protocol, i.task, i.metric};
        const auto [at, is_new] = places_.try_emplace(key, table_.cells.size());
        if (is_new) {
            if (table_.cells.size() == most_cells)
                throw_error(ErrorKind::input,
                            "the results have more than {} combinations of arm, budget, protocol, "
                            "task and metric, the limit",
                            most_cells);
            Cell cell;
            static_cast<CellKey &>(cell) = std::move(key);
            cell.kind = metric_named(cell.metric);
            table_.cells.push_back(std::move(cell));
            rows_.emplace_back();
            tasks_.try_emplace(i.task, tasks_.size());
        }
        return at->second;
    }

    void add(Item &&i) {
        const size_t at = cell_of(i);
        Cell &cell = table_.cells[at];
        Row row;
        row.item = names_.number(i.item);
        // An item without a document is a cluster of its own. The prefixes prevent that an item and
        // a document with the same name become one cluster.
        row.cluster =
            names_.number(i.document.empty() ? "\x01item:" + i.item : "\x01document:" + i.document);
        row.seed = i.seed;
        row.value = i.value;
        row.length = i.length;
        row.depth = static_cast<float>(i.depth);
        row.expected = names_.number(i.expected);
        rows_[at].push_back(row);
        ++cell.records;
        const double share = 1 / static_cast<double>(cell.records);
        const auto mean = [share](double &to, double value) { to += (value - to) * share; };
        mean(cell.kv_bytes, static_cast<double>(i.kv_bytes));
        mean(cell.full_kv_bytes, static_cast<double>(i.full_kv_bytes));
        mean(cell.own_full_kv_bytes,
             static_cast<double>(i.own_full_kv_bytes != 0 ? i.own_full_kv_bytes : i.full_kv_bytes));
        mean(cell.policy_bytes, static_cast<double>(i.policy_bytes));
        mean(cell.kept_slots, i.kept_slots);
        mean(cell.seen, static_cast<double>(i.seen));
        mean(cell.evictions, static_cast<double>(i.evictions));
        mean(cell.eviction_us, i.eviction_us);
        cell.peak_kv_bytes = std::max(cell.peak_kv_bytes, i.peak_kv_bytes);
        cell.without_eviction += i.evictions == 0 ? 1 : 0;
    }

    void add(Prompt &&p) {
        KeptTokens &known = table_.kept_tokens[{p.protocol, p.task, p.item}];
        if (known.tokens.empty()) known.tokens = std::move(p.tokens);
    }

    void add(KeepMap &&m) {
        if (!m.kept.empty())
            table_.kept_tokens[{m.protocol, m.task, m.item}].kept.try_emplace({m.arm, m.budget},
                                                                              m.kept);
        MeanMap &mean = table_.keep_maps[place_of(m)];
        if (mean.items == 0) {
            mean.layers = m.layers;
            mean.kv_heads = m.kv_heads;
            mean.bins.assign(m.bins.size(), 0.0F);
        }
        if (mean.layers != m.layers || mean.kv_heads != m.kv_heads) {
            note(fmt::format(
                "the keep maps of arm '{}' have different numbers of layers or heads; only the "
                "first shape is shown",
                printable(m.arm, 60)));
            return;
        }
        ++mean.items;
        for (size_t i = 0; i < m.bins.size(); ++i) mean.bins[i] += m.bins[i];
    }

    void add(Timeline &&t) {
        PlaceKey key = place_of(t);
        table_.timelines.try_emplace(std::move(key), std::move(t));
    }

    void add(Curve &&c) {
        MeanCurve &mean = table_.curves[{place_of(c), c.metric}];
        if (mean.mean.size() < c.values.size()) {
            mean.items.resize(c.values.size());
            mean.mean.resize(c.values.size());
            mean.squares.resize(c.values.size());
        }
        for (size_t i = 0; i < c.values.size(); ++i) {
            const double off = c.values[i] - mean.mean[i];
            mean.mean[i] += off / ++mean.items[i];
            mean.squares[i] += off * (c.values[i] - mean.mean[i]);
        }
    }

    void add(Warning &&w) {
        if (!seen_warnings_.emplace(w.arm, w.budget, w.protocol, w.task, w.text).second) return;
        if (table_.warnings.size() == most_warnings)
            note(fmt::format("there are more than {} warnings; see the results file for the others",
                             most_warnings));
        if (table_.warnings.size() < most_warnings) table_.warnings.push_back(std::move(w));
    }

    void note(std::string text) {
        if (std::find(table_.notes.begin(), table_.notes.end(), text) == table_.notes.end())
            table_.notes.push_back(std::move(text));
    }

    // Makes one point for each item: the mean over its seeds. If a seed was recorded twice, the
    // first record counts.
    void settle(Cell &cell, std::vector<Row> &rows) {
        std::stable_sort(rows.begin(), rows.end(), [](const Row &a, const Row &b) {
            return std::tie(a.item, a.seed) < std::tie(b.item, b.seed);
        });
        for (size_t i = 0; i < rows.size(); ++i) {
            const Row &row = rows[i];
            if (i > 0 && rows[i - 1].item == row.item && rows[i - 1].seed == row.seed) {
                ++cell.repeated;
                if (rows[i - 1].value != row.value) {
                    ++cell.contradicting;
                    cell.contradiction = names_.text(row.item);
                    rows[i].value = rows[i - 1].value;
                }
                continue;
            }
            if (cell.points.empty() || cell.points.back().item != row.item)
                cell.points.push_back(
                    {row.item, row.cluster, 0, row.length, row.depth, 0, row.expected});
            Point &point = cell.points.back();
            ++point.seeds;
            point.value += (row.value - point.value) / point.seeds;
        }
        rows = {};
    }

    void sort_cells() {
        std::map<std::string, size_t> arms;
        for (const Arm &arm : table_.header.arms) arms.try_emplace(arm.name, arms.size());
        const auto order = [&](const Cell &c) {
            const auto at = arms.find(c.arm);
            return std::pair(at == arms.end() ? arms.size() : at->second, std::cref(c.arm));
        };
        std::stable_sort(
            table_.cells.begin(), table_.cells.end(), [&](const Cell &a, const Cell &b) {
                if (a.task != b.task) return tasks_.at(a.task) < tasks_.at(b.task);
                if (a.metric != b.metric) return a.metric < b.metric;
                if (a.protocol != b.protocol) return a.protocol < b.protocol;
                if (a.arm != b.arm) {
                    const auto first = order(a), second = order(b);
                    return first.first != second.first ? first.first < second.first : a.arm < b.arm;
                }
                return budget_before(a.budget, b.budget);
            });
    }

    Table &table_;
    Names &names_;
    std::map<CellKey, size_t> places_;
    std::vector<std::vector<Row>> rows_;
    std::map<std::string, size_t> tasks_;
    std::set<std::tuple<std::string, std::string, std::string, std::string, std::string>>
        seen_warnings_;
};

} // namespace

uint32_t Names::number(std::string_view text) {
    const auto found = numbers_.find(text);
    if (found != numbers_.end()) return found->second;
    const std::string &kept = texts_.emplace_back(text);
    const auto number = static_cast<uint32_t>(texts_.size() - 1);
    numbers_.emplace(kept, number);
    return number;
}

bool budget_before(const std::string &a, const std::string &b) {
    const auto key = [](const std::string &budget) {
        const size_t colon = budget.find(':');
        const std::string unit = budget.substr(0, colon);
        const int order = unit == "full"     ? 0
                          : unit == "tokens" ? 1
                          : unit == "ratio"  ? 2
                          : unit == "mib"    ? 3
                                             : 4;
        const double size =
            colon == std::string::npos ? 0 : std::strtod(budget.c_str() + colon + 1, nullptr);
        return std::tuple(order, std::isfinite(size) ? size : 0.0, budget);
    };
    return key(a) < key(b);
}

const Cell *Table::find(const CellKey &key) const {
    for (const Cell &cell : cells)
        if (static_cast<const CellKey &>(cell) == key) return &cell;
    return nullptr;
}

fs::path results_file(const fs::path &path) {
    std::error_code error;
    if (!fs::exists(path, error))
        throw_error(ErrorKind::input,
                    "{}: expected a folder with an experiment's results, found nothing",
                    printable(path.string(), 300));
    if (!fs::is_directory(path, error)) return path;
    const fs::path file = path / "results.jsonl";
    if (!fs::is_regular_file(file, error))
        throw_error(ErrorKind::input,
                    "{}: there is no results.jsonl in this folder; `keel ab` writes one",
                    printable(path.string(), 300));
    return file;
}

Table load_table(const fs::path &path, Names &names) {
    const fs::path file = results_file(path);
    Table table;
    table.header = read_header(file);
    Loader loader(table, names);
    const ReadResult result =
        read_records(file, [&](Record &&record, uint64_t) { loader.take(std::move(record)); });
    loader.finish();
    table.records = result.records;
    if (result.dropped_tail)
        table.notes.push_back("the last line of the results is incomplete and was ignored, because "
                              "the run was stopped");
    if (table.header.old_margin)
        table.notes.push_back(fmt::format("these results come from a version in which all metrics "
                                          "had one margin; this margin ({:g}) "
                                          "is not used, and the protocol 'query_aware' is shown "
                                          "under its new name 'whole_prompt'",
                                          *table.header.old_margin));
    if (table.header.shards > 1)
        table.notes.push_back(
            fmt::format("these are only the results of shard {} of {}; `keel ab merge` merges "
                        "the shards",
                        table.header.shard, table.header.shards));
    return table;
}

} // namespace keel::ab
