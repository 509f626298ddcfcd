#include "eval/ab/report/data.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace keel {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t most_curve_points = 64, timeline_points = 40'000, map_characters = 1'200'000;
constexpr size_t most_depths = 24, most_lengths = 24;

// Six digits: what a picture can show.
Json number(double value) {
    if (!std::isfinite(value)) return {};
    if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<int64_t>(value);
    return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
}

Json number(const std::optional<double> &value) {
    return value ? number(*value) : Json();
}

// Texts by number: they come back thousands of times.
class Texts {
  public:
    size_t operator()(const std::string &text) {
        const auto [at, is_new] = numbers_.try_emplace(text, list_.size());
        if (is_new) list_.push_back(text);
        return at->second;
    }
    Json list() const { return list_; }

  private:
    std::map<std::string, size_t> numbers_;
    std::vector<std::string> list_;
};

class Writer {
  public:
    Writer(const AbTable &table, const AbSummary &summary, int level)
        : table_(table), summary_(summary), level_(level) {}

    Json write() {
        Json out;
        out["header"] = Json::parse(ab_header_line(summary_.header));
        out["records"] = summary_.records;
        notes_ = summary_.notes;
        out["cells"] = cells();
        out["contrasts"] = contrasts();
        out["apart"] = apart();
        out["speeds"] = speeds();
        out["heat"] = level_ < 3 ? heat() : Json::array();
        out["curves"] = level_ < 3 ? curves() : Json::array();
        out["timelines"] = level_ < 2 ? timelines() : Json::array();
        out["maps"] = level_ < 1 ? maps() : Json::array();
        if (level_ >= 1 && !table_.keep_maps.empty()) left_out("the keep maps");
        if (level_ >= 2 && !table_.timelines.empty()) left_out("the caches' sizes over time");
        if (level_ >= 3) left_out("heat maps and curves");
        out["warnings"] = Json::array();
        for (const AbWarning &w : summary_.warnings)
            out["warnings"].push_back({w.arm, w.budget, w.protocol, w.task, w.text});
        out["notes"] = notes_;
        out["names"] = texts_.list(); // last: by now all are known
        return out;
    }

  private:
    void left_out(const std::string &what) {
        notes_.push_back(what +
                         " are left out of this page, which would be too large: results.jsonl has them");
    }

    Json place(const AbCellKey &key) {
        return {texts_(key.arm), texts_(key.budget), texts_(key.protocol), texts_(key.task),
                texts_(key.metric)};
    }

    Json place(const AbPlaceKey &key) {
        const auto &[arm, budget, protocol, task] = key;
        return {texts_(arm), texts_(budget), texts_(protocol), texts_(task)};
    }

    Json cells() {
        Json out;
        out["columns"] = {"arm",  "budget", "protocol", "task",   "metric", "up",    "kind",
                          "n",    "docs",   "mean",     "low",    "high",   "bytes", "full",
                          "peak", "kept",   "seen",     "evicts", "us",     "front"};
        out["texts"] = 5;
        out["rows"] = Json::array();
        for (const AbCellSummary &one : summary_.cells) {
            const AbCell &c = *one.cell;
            Json row = place(c);
            for (Json value :
                 {Json(c.kind.higher_is_better ? 1 : 0), Json(static_cast<int>(c.kind.kind)), Json(one.items),
                  Json(one.clusters), number(one.mean), one.interval ? number(one.interval->low) : Json(),
                  one.interval ? number(one.interval->high) : Json(), number(c.kv_bytes),
                  number(c.full_kv_bytes), Json(c.peak_kv_bytes), number(c.kept_slots), number(c.seen),
                  number(c.evictions), number(c.eviction_us), Json(one.on_front ? 1 : 0)})
                row.push_back(std::move(value));
            out["rows"].push_back(std::move(row));
        }
        return out;
    }

    Json contrast_row(const AbContrast &c) {
        Json row = {texts_(c.a),        texts_(c.a_budget), texts_(c.b),
                    texts_(c.b_budget), texts_(c.protocol), texts_(c.task),
                    texts_(c.metric),   texts_(c.family),   texts_(c.interval_method),
                    texts_(c.test)};
        const auto side = [](const std::optional<Interval> &i, double Interval::*end) {
            return i ? number((*i).*end) : Json();
        };
        const bool any = c.items > 0;
        for (Json value : {Json(static_cast<int>(c.kind)),
                           Json(static_cast<int>(c.verdict)),
                           Json(c.within_margin ? 1 : 0),
                           any ? number(c.mean_a) : Json(),
                           any ? number(c.mean_b) : Json(),
                           any ? number(c.effect) : Json(),
                           side(c.interval, &Interval::low),
                           side(c.interval, &Interval::high),
                           number(c.p),
                           c.p ? number(c.p_adjusted) : Json(),
                           Json(c.family_size),
                           number(c.detectable),
                           Json(c.items),
                           Json(c.clusters),
                           Json(c.identical),
                           Json(c.only_a + c.only_b),
                           Json(c.ratio ? 1 : 0),
                           Json(c.meaning.higher_is_better ? 1 : 0),
                           Json(static_cast<int>(c.meaning.kind)),
                           number(c.at_bytes),
                           number(c.noise),
                           Json(c.implied ? 1 : 0),
                           Json(c.length)})
            row.push_back(std::move(value));
        return row;
    }

    Json contrasts() {
        Json out;
        out["columns"] = {"a",      "aBudget", "b",     "bBudget",   "protocol", "task",      "metric",
                          "family", "method",  "test",  "kind",      "verdict",  "within",    "meanA",
                          "meanB",  "effect",  "low",   "high",      "p",        "pAdjusted", "size",
                          "seen",   "n",       "docs",  "identical", "missing",  "ratio",     "up",
                          "sort",   "bytes",   "noise", "implied",   "length"};
        out["texts"] = 10;
        out["rows"] = Json::array();
        bool cut = false;
        for (const AbContrast &c : summary_.contrasts) {
            if (level_ >= 4 && c.kind == AbContrast::Kind::pair) {
                cut = true;
            } else {
                out["rows"].push_back(contrast_row(c));
            }
        }
        if (cut) left_out("contrasts between two arms that are not the reference");
        for (const AbContrast &c : summary_.equal_bytes)
            out["rows"].push_back(contrast_row(c));
        for (const AbContrast &c : summary_.noise)
            out["rows"].push_back(contrast_row(c));
        return out;
    }

    Json apart() {
        Json out = Json::array();
        for (const AbApart &one : summary_.apart)
            out.push_back({texts_(one.a), texts_(one.b), texts_(one.protocol), texts_(one.task),
                           number(one.a_bytes.low), number(one.a_bytes.high), number(one.b_bytes.low),
                           number(one.b_bytes.high)});
        return out;
    }

    Json speeds() {
        Json out;
        out["columns"] = {"arm", "budget", "protocol", "task", "metric", "length",
                          "n",   "median", "p25",      "p75",  "p99"};
        out["texts"] = 5;
        out["rows"] = Json::array();
        for (const AbSpeedRow &s : summary_.speeds) {
            Json row = place(s.key);
            for (Json value : {Json(s.length), Json(s.items), number(s.median), number(s.p25), number(s.p75),
                               number(s.p99)})
                row.push_back(std::move(value));
            out["rows"].push_back(std::move(row));
        }
        return out;
    }

    // Prompts are a few tokens shorter or longer than what was asked for: lengths within 5% of each other are one.
    static std::vector<int64_t> length_groups(const std::set<int64_t> &lengths) {
        std::vector<int64_t> firsts;
        double tolerance = 0.05;
        do {
            firsts.clear();
            for (const int64_t length : lengths)
                if (firsts.empty() ||
                    static_cast<double>(length) > static_cast<double>(firsts.back()) * (1 + tolerance))
                    firsts.push_back(length);
            tolerance *= 2;
        } while (firsts.size() > most_lengths && tolerance < 1e6);
        return firsts;
    }

    static size_t group_of(const std::vector<int64_t> &firsts, int64_t length) {
        return static_cast<size_t>(std::upper_bound(firsts.begin(), firsts.end(), length) - firsts.begin()) -
               1;
    }

    // The items of one task that have a depth: means over lengths and depths.
    Json heat() {
        std::map<std::string, std::pair<std::set<int64_t>, std::set<float>>> axes;
        const auto has_depth = [](const AbPoint &p) { return p.depth >= 0 && p.length > 0; };
        for (const AbCell &cell : table_.cells) {
            if (!cell.kind.is_quality()) continue;
            for (const AbPoint &point : cell.points) {
                if (!has_depth(point)) continue;
                axes[cell.task].first.insert(point.length);
                axes[cell.task].second.insert(point.depth);
            }
        }
        Json out = Json::array();
        for (const auto &[task, axis] : axes) {
            const std::vector<int64_t> lengths = length_groups(axis.first);
            std::vector<double> depths;
            const bool binned = axis.second.size() > most_depths;
            if (binned) {
                for (size_t i = 0; i < most_depths; ++i)
                    depths.push_back((static_cast<double>(i) + 0.5) / most_depths);
            } else {
                for (const float depth : axis.second)
                    depths.push_back(depth);
            }
            const auto depth_at = [&](float depth) {
                if (binned) return std::min(static_cast<size_t>(depth * most_depths), most_depths - 1);
                return static_cast<size_t>(
                    std::lower_bound(depths.begin(), depths.end(), static_cast<double>(depth)) -
                    depths.begin());
            };
            Json one;
            one["task"] = texts_(task);
            one["lengths"] = lengths;
            one["depths"] = Json::array();
            for (const double depth : depths)
                one["depths"].push_back(number(depth));
            one["cells"] = Json::array();
            for (const AbCell &cell : table_.cells) {
                if (cell.task != task || !cell.kind.is_quality()) continue;
                std::vector<double> sums(lengths.size() * depths.size());
                std::vector<uint32_t> counts(sums.size());
                bool any = false;
                for (const AbPoint &point : cell.points) {
                    if (!has_depth(point)) continue;
                    const size_t at =
                        depth_at(point.depth) * lengths.size() + group_of(lengths, point.length);
                    sums[at] += point.value;
                    ++counts[at];
                    any = true;
                }
                if (!any) continue;
                Json values = Json::array(), items = Json::array();
                for (size_t i = 0; i < sums.size(); ++i) {
                    values.push_back(counts[i] == 0
                                         ? Json()
                                         : number(std::strtod(
                                               fmt::format("{:.4g}", sums[i] / counts[i]).c_str(), nullptr)));
                    items.push_back(counts[i]);
                }
                one["cells"].push_back(
                    {place(cell), std::move(values), std::move(items), cell.kind.higher_is_better ? 1 : 0});
            }
            out.push_back(std::move(one));
        }
        return out;
    }

    Json curves() {
        Json out = Json::array();
        for (const auto &[key, curve] : table_.curves) {
            const size_t n = curve.mean.size();
            if (n == 0) continue;
            const size_t step = (n + most_curve_points - 1) / most_curve_points;
            Json points = Json::array();
            for (size_t from = 0; from < n; from += step) {
                double sum = 0, weight = 0, error = 0;
                const size_t to = std::min(n, from + step);
                for (size_t i = from; i < to; ++i) {
                    const double items = curve.items[i];
                    sum += curve.mean[i] * items;
                    weight += items;
                    // Neighbours go up and down together: their errors are not divided by their number.
                    if (items > 1)
                        error += std::sqrt(curve.squares[i] / (items - 1) / items) /
                                 static_cast<double>(to - from);
                }
                points.push_back(
                    {number((static_cast<double>(from + to) - 1) / 2), number(sum / weight), number(error)});
            }
            Json where = place(key.first);
            where.push_back(texts_(key.second));
            out.push_back({std::move(where), curve.items[0], std::move(points)});
        }
        return out;
    }

    Json timelines() {
        Json out = Json::array();
        if (table_.timelines.empty()) return out;
        const size_t most = std::clamp<size_t>(timeline_points / table_.timelines.size(), 20, 300);
        for (const auto &[key, timeline] : table_.timelines) {
            const size_t n = timeline.points.size(), step = (n + most - 1) / std::max<size_t>(most, 1);
            Json points = Json::array();
            uint64_t evicted = 0;
            for (size_t i = 0; i < n; ++i) {
                evicted += timeline.points[i][2];
                // The last of each stretch stands for it, and for what was evicted in it.
                if (i % step != step - 1 && i + 1 != n) continue;
                points.push_back({timeline.points[i][0], timeline.points[i][1], evicted});
                evicted = 0;
            }
            out.push_back({place(key), timeline.item, std::move(points)});
        }
        return out;
    }

    Json maps() {
        Json out = Json::array();
        size_t left = map_characters, skipped = 0;
        for (const auto &[key, map] : table_.keep_maps) {
            if (map.items == 0 || map.bins.size() > left) {
                ++skipped;
                continue;
            }
            left -= map.bins.size();
            // A share as one character of 64.
            std::string bins(map.bins.size(), '0');
            for (size_t i = 0; i < bins.size(); ++i)
                bins[i] = shades[static_cast<size_t>(std::lround(std::clamp(map.bins[i], 0.0F, 1.0F) * 63))];
            out.push_back({place(key), map.layers, map.kv_heads, map.items, std::move(bins)});
        }
        if (skipped > 0)
            notes_.push_back(
                fmt::format("{} of {} keep maps are left out of this page, which would be too large: "
                            "results.jsonl has them",
                            skipped, table_.keep_maps.size()));
        return out;
    }

    static constexpr std::string_view shades =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

    const AbTable &table_;
    const AbSummary &summary_;
    int level_;
    Texts texts_;
    std::vector<std::string> notes_;
};

} // namespace

Json ab_report_data(const AbTable &table, const AbSummary &summary, int level) {
    return Writer(table, summary, level).write();
}

} // namespace keel
