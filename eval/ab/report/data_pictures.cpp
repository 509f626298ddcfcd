#include "eval/ab/report/data_writer.hpp"
#include "eval/page/page.hpp"

#include <algorithm>
#include <set>

namespace keel::ab {
namespace {

constexpr size_t most_curve_points = 64, timeline_points = 40'000, map_characters = 1'200'000;
constexpr size_t most_depths = 24, most_lengths = 24;
// Limit for the bytes of the tokens' texts and of the characters that show which arm kept a token.
constexpr size_t most_token_bytes = 1'000'000;

class PictureWriter {
  public:
    PictureWriter(DataWriter &writer, const Table &table) : w_(writer), table_(table) {}

    void write(int level) {
        w_.list("heat", level < 3, [&] { write_heat(); });
        w_.list("curves", level < 3, [&] { write_curves(); });
        w_.list("timelines", level < 2, [&] { write_timelines(); });
        w_.list("maps", level < 1, [&] { write_maps(); });
        w_.list("tokens", level < 1, [&] { write_tokens(); });
        if (level >= 1 && !table_.keep_maps.empty()) w_.left_out("the keep maps");
        if (level >= 2 && !table_.timelines.empty()) w_.left_out("the caches' sizes over time");
        if (level >= 3) w_.left_out("heat maps and curves");
    }

  private:
    // Prompts can be a few tokens shorter or longer than the length in the task. So lengths within
    // 5% of each other form one group.
    static std::vector<int64_t> length_groups(const std::set<int64_t> &lengths) {
        std::vector<int64_t> firsts;
        double tolerance = 0.05;
        do {
            firsts.clear();
            for (const int64_t length : lengths)
                if (firsts.empty() || static_cast<double>(length) >
                                          static_cast<double>(firsts.back()) * (1 + tolerance))
                    firsts.push_back(length);
            tolerance *= 2;
        } while (firsts.size() > most_lengths && tolerance < 1e6);
        return firsts;
    }

    static size_t group_of(const std::vector<int64_t> &firsts, int64_t length) {
        return static_cast<size_t>(std::upper_bound(firsts.begin(), firsts.end(), length) -
                                   firsts.begin()) -
               1;
    }

    // The depths of a heat map: the depths of the items, or equal parts if the items have many
    // different depths.
    struct Depths {
        explicit Depths(const std::set<float> &found) : is_binned(found.size() > most_depths) {
            if (is_binned) {
                for (size_t i = 0; i < most_depths; ++i)
                    values.push_back((static_cast<double>(i) + 0.5) / most_depths);
            } else {
                values.assign(found.begin(), found.end());
            }
        }
        size_t index(float depth) const {
            if (is_binned)
                return std::min(static_cast<size_t>(depth * most_depths), most_depths - 1);
            return static_cast<size_t>(
                std::lower_bound(values.begin(), values.end(), static_cast<double>(depth)) -
                values.begin());
        }

        bool is_binned;
        std::vector<double> values;
    };

    static bool has_depth(const Point &p) { return p.depth >= 0 && p.length > 0; }

    // Writes a heat map for each task with depths (a depth is the place of the asked fact in the
    // prompt). Each value of the heat map is the mean of the items with one length and one depth.
    void write_heat() {
        std::map<std::string, std::pair<std::set<int64_t>, std::set<float>>> axes;
        for (const Cell &cell : table_.cells) {
            if (!cell.kind.is_quality()) continue;
            for (const Point &point : cell.points) {
                if (!has_depth(point)) continue;
                axes[cell.task].first.insert(point.length);
                axes[cell.task].second.insert(point.depth);
            }
        }
        for (const auto &entry : axes) {
            const std::string &task = entry.first;
            const std::vector<int64_t> lengths = length_groups(entry.second.first);
            const Depths depths(entry.second.second);
            w_.out.begin_object().member("task", w_.names(task));
            w_.list("lengths", true, [&] {
                for (const int64_t length : lengths) w_.out.value(length);
            });
            w_.list("depths", true, [&] {
                for (const double depth : depths.values) w_.put(short_number(depth));
            });
            w_.list("cells", true, [&] {
                for (const Cell &cell : table_.cells) {
                    if (cell.task == task && cell.kind.is_quality())
                        write_heat_cell(cell, lengths, depths);
                }
            });
            w_.out.end_object();
        }
    }

    void write_heat_cell(const Cell &cell, const std::vector<int64_t> &lengths,
                         const Depths &depths) {
        std::vector<double> sums(lengths.size() * depths.values.size());
        std::vector<uint32_t> counts(sums.size());
        bool any = false;
        for (const Point &point : cell.points) {
            if (!has_depth(point)) continue;
            const size_t at =
                depths.index(point.depth) * lengths.size() + group_of(lengths, point.length);
            sums[at] += point.value;
            ++counts[at];
            any = true;
        }
        if (!any) return;
        w_.out.begin_array();
        w_.row(static_cast<const CellKey &>(cell));
        w_.out.begin_array();
        for (size_t i = 0; i < sums.size(); ++i) {
            if (counts[i] == 0) {
                w_.out.null();
            } else {
                w_.out.raw(fmt::format("{:.4g}", sums[i] / counts[i]));
            }
        }
        w_.out.end_array();
        w_.out.begin_array();
        for (const uint32_t count : counts) w_.out.value(count);
        w_.out.end_array();
        w_.put(cell.kind.higher_is_better);
        w_.out.end_array();
    }

    void write_curves() {
        for (const auto &[key, curve] : table_.curves) {
            const size_t n = curve.mean.size();
            if (n == 0) continue;
            const size_t step = (n + most_curve_points - 1) / most_curve_points;
            w_.out.begin_array().begin_array();
            w_.put(key.first);
            w_.out.value(w_.names(key.second)).end_array().value(curve.items[0]).begin_array();
            for (size_t from = 0; from < n; from += step) {
                double sum = 0, weight = 0, error = 0;
                const size_t to = std::min(n, from + step);
                for (size_t i = from; i < to; ++i) {
                    const double items = curve.items[i];
                    sum += curve.mean[i] * items;
                    weight += items;
                    // The values of neighbouring tokens are correlated. So averaging several tokens
                    // does not reduce the error: the error of the mean is estimated as the mean of
                    // the tokens' errors.
                    if (items > 1)
                        error += std::sqrt(curve.squares[i] / (items - 1) / items) /
                                 static_cast<double>(to - from);
                }
                w_.row(short_number((static_cast<double>(from + to) - 1) / 2),
                       short_number(sum / weight), short_number(error));
            }
            w_.out.end_array().end_array();
        }
    }

    void write_timelines() {
        if (table_.timelines.empty()) return;
        const size_t most = std::clamp<size_t>(timeline_points / table_.timelines.size(), 20, 300);
        for (const auto &[key, timeline] : table_.timelines) {
            const size_t n = timeline.points.size(), step = (n + most - 1) / most;
            w_.out.begin_array();
            w_.row(key);
            w_.out.value(timeline.item).begin_array();
            uint64_t evicted = 0;
            for (size_t i = 0; i < n; ++i) {
                evicted += timeline.points[i][2];
                // `step` consecutive points become one point: the last of these points, with the
                // sum of their evictions.
                if (i % step != step - 1 && i + 1 != n) continue;
                w_.row(timeline.points[i][0], timeline.points[i][1], evicted);
                evicted = 0;
            }
            w_.out.end_array().end_array();
        }
    }

    void write_maps() {
        size_t left = map_characters, skipped = 0;
        for (const auto &[key, map] : table_.keep_maps) {
            if (map.items == 0 || map.bins.size() > left) {
                ++skipped;
                continue;
            }
            left -= map.bins.size();
            std::string bins;
            for (const float share : map.bins) bins += page_shade(share);
            w_.out.begin_array();
            w_.row(key);
            w_.out.value(map.layers).value(map.kv_heads).value(map.items).value(bins).end_array();
        }
        if (skipped > 0)
            w_.notes.push_back(fmt::format(
                "{} of {} keep maps are left out of this page, which would be too large: "
                "results.jsonl has them",
                skipped, table_.keep_maps.size()));
    }

    // Writes the tokens of the prompt, and the arms that kept each token, for the first items of
    // each task.
    void write_tokens() {
        size_t left = most_token_bytes, skipped = 0;
        for (const auto &[key, item] : table_.kept_tokens) {
            if (item.tokens.empty() || item.kept.empty()) continue;
            size_t bytes = 0;
            for (const std::string &token : item.tokens) bytes += token.size() + 3;
            for (const auto &one : item.kept) bytes += one.second.size();
            if (bytes > left) {
                ++skipped;
                continue;
            }
            left -= bytes;
            w_.out.begin_array();
            w_.row(w_.names(key[0]), w_.names(key[1]), key[2]);
            w_.out.begin_array();
            w_.put(item.tokens);
            w_.out.end_array().begin_array();
            for (const auto &[arm, kept] : item.kept)
                w_.row(w_.names(arm.first), w_.names(arm.second), kept);
            w_.out.end_array().end_array();
        }
        if (skipped > 0) w_.left_out(fmt::format("the kept tokens of {} items", skipped));
    }

    DataWriter &w_;
    const Table &table_;
};

// The items of a cell, without the measured numbers. Most cells of a task have the same items.
using ItemKey = std::tuple<uint32_t, uint32_t, int64_t, float>;

std::vector<ItemKey> items_of(const Cell &cell) {
    std::vector<ItemKey> out;
    for (const Point &p : cell.points) out.emplace_back(p.item, p.cluster, p.length, p.depth);
    return out;
}

} // namespace

void write_pictures(DataWriter &writer, const Table &table, int level) {
    PictureWriter(writer, table).write(level);
}

void write_item_numbers(DataWriter &writer, const Table &table, const Names &names, int level) {
    const bool is_wanted = level < 5;
    if (!is_wanted) writer.left_out("the numbers of single items");
    std::map<std::vector<ItemKey>, size_t> sets;
    std::vector<const std::vector<ItemKey> *> order;
    writer.list("items", is_wanted, [&] {
        for (const Cell &cell : table.cells) {
            const auto [at, is_new] = sets.try_emplace(items_of(cell), sets.size());
            if (is_new) order.push_back(&at->first);
            writer.out.begin_array();
            writer.row(static_cast<const CellKey &>(cell));
            writer.out.value(at->second).begin_array();
            for (const Point &point : cell.points) writer.put(short_number(point.value));
            writer.out.end_array().end_array();
        }
    });
    // Columns of a row: item, document, tokens, depth. An empty document means that the item is the
    // only one of its document.
    writer.list("itemSets", is_wanted, [&] {
        for (const auto *set : order) {
            writer.out.begin_array();
            for (const auto &[item, cluster, length, depth] : *set) {
                const std::string &text = names.text(cluster);
                const std::string document = "\x01"
                                             "document:";
                writer.row(names.text(item),
                           text.starts_with(document) ? text.substr(document.size()) : "", length,
                           short_number(depth < 0 ? std::nullopt : std::optional<double>(depth)));
            }
            writer.out.end_array();
        }
    });
}

} // namespace keel::ab
