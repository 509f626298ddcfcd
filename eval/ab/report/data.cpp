#include "eval/ab/report/data.hpp"

#include "base/json_writer.hpp"
#include "eval/page/page.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <map>
#include <set>

namespace keel::ab {
namespace {

constexpr size_t most_curve_points = 64, timeline_points = 40'000, map_characters = 1'200'000;
constexpr size_t most_depths = 24, most_lengths = 24;

// A number as JSON with six digits, which is enough for a chart.
struct Short {
    std::string json;
};
Short number(double value) {
    if (!std::isfinite(value)) return {"null"};
    if (value == std::floor(value) && std::abs(value) < 1e15)
        return {std::to_string(static_cast<int64_t>(value))};
    return {fmt::format("{:.6g}", value)};
}
Short number(const std::optional<double> &value) { return value ? number(*value) : Short{"null"}; }

// Numbers for texts, because each text is repeated thousands of times.
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

class DataWriter {
  public:
    DataWriter(const Table &table, const Summary &summary, int level)
        : table_(table), summary_(summary), level_(level) {}

    std::string write() {
        notes_ = summary_.notes;
        out_.begin_object().key("header").raw(header_line(summary_.header));
        out_.member("primary", summary_.primary);
        out_.member("margins", margins_text(summary_.contrasts));
        out_.member("records", summary_.records);
        write_cells();
        write_contrasts();
        list("apart", true, [&] {
            for (const Apart &one : summary_.apart) out_.value(apart_text(one));
        });
        write_speeds();
        list("heat", level_ < 3, [&] { write_heat(); });
        list("curves", level_ < 3, [&] { write_curves(); });
        list("timelines", level_ < 2, [&] { write_timelines(); });
        list("maps", level_ < 1, [&] { write_maps(); });
        if (level_ >= 1 && !table_.keep_maps.empty()) left_out("the keep maps");
        if (level_ >= 2 && !table_.timelines.empty()) left_out("the caches' sizes over time");
        if (level_ >= 3) left_out("heat maps and curves");
        list("warnings", true, [&] {
            for (const Warning &w : summary_.warnings)
                row(w.arm, w.budget, w.protocol, w.task, w.text);
        });
        list("notes", true, [&] { put(notes_); });
        // Last, because all names are known by then.
        list("names", true, [&] { put(texts_.list()); });
        out_.end_object();
        return out_.take();
    }

  private:
    template <typename Fill> void list(std::string_view name, bool is_wanted, Fill &&fill) {
        out_.key(name).begin_array();
        if (is_wanted) fill();
        out_.end_array();
    }
    // A table. Its first `texts` columns are numbers of names.
    template <typename Fill>
    void table(std::string_view name, std::initializer_list<const char *> columns, int texts,
               Fill &&fill) {
        out_.key(name).begin_object();
        list("columns", true, [&] {
            for (const char *column : columns) out_.value(column);
        });
        out_.member("texts", texts);
        list("rows", true, fill);
        out_.end_object();
    }

    void put(const Short &number) { out_.raw(number.json); }
    void put(bool flag) { out_.value(flag ? 1 : 0); }
    void put(const std::vector<std::string> &texts) {
        for (const std::string &text : texts) out_.value(text);
    }
    void put(const CellKey &key) {
        out_.value(texts_(key.arm)).value(texts_(key.budget)).value(texts_(key.protocol));
        out_.value(texts_(key.task)).value(texts_(key.metric));
    }
    void put(const PlaceKey &key) {
        const auto &[arm, budget, protocol, task] = key;
        out_.value(texts_(arm)).value(texts_(budget)).value(texts_(protocol)).value(texts_(task));
    }
    template <typename T> void put(const T &value) { out_.value(value); }
    template <typename... T> void row(const T &...values) {
        out_.begin_array();
        (put(values), ...);
        out_.end_array();
    }

    void left_out(const std::string &what) {
        notes_.push_back(
            what + " are left out of this page, which would be too large: results.jsonl has them");
    }

    void write_cells() {
        table("cells",
              {"arm",  "budget", "protocol", "task", "metric", "up",       "kind",        "n",
               "docs", "mean",   "low",      "high", "bytes",  "full",     "policyBytes", "peak",
               "kept", "seen",   "evicts",   "us",   "front",  "peakFront"},
              5, [&] {
                  for (const CellSummary &one : summary_.cells) {
                      const Cell &c = *one.cell;
                      row(static_cast<const CellKey &>(c), c.kind.higher_is_better,
                          static_cast<int>(c.kind.kind), one.items, one.clusters, number(one.mean),
                          end(one.interval, &Interval::low), end(one.interval, &Interval::high),
                          number(c.kv_bytes), number(c.full_kv_bytes), number(c.policy_bytes),
                          c.peak_kv_bytes, number(c.kept_slots), number(c.seen),
                          number(c.evictions), number(c.eviction_us), one.on_front,
                          one.on_peak_front);
                  }
              });
    }

    static Short end(const std::optional<Interval> &interval, double Interval::*end) {
        return interval ? number((*interval).*end) : Short{"null"};
    }

    void write_contrast(const Contrast &c) {
        const auto mean = [&](double value) { return c.items > 0 ? number(value) : Short{"null"}; };
        row(texts_(c.a), texts_(c.a_budget), texts_(c.b), texts_(c.b_budget), texts_(c.protocol),
            texts_(c.task), texts_(c.metric), texts_(c.family), texts_(c.method),
            static_cast<int>(c.kind), static_cast<int>(c.verdict), c.planned, c.low_is_open,
            c.high_is_open, c.within_margin, c.non_inferior, c.beyond_margin,
            number(c.margin_band().low), number(c.margin_band().high),
            c.p_within() ? number(c.p_within_adjusted()) : Short{"null"},
            c.p_non_inferior ? number(c.p_non_inferior_adjusted) : Short{"null"}, mean(c.mean_a),
            mean(c.mean_b), mean(c.effect), end(c.interval, &Interval::low),
            end(c.interval, &Interval::high), number(c.p),
            c.p ? number(c.p_adjusted) : Short{"null"}, c.family_size, number(c.detectable),
            c.items, c.clusters, c.identical, c.only_a + c.only_b, c.ratio,
            c.meaning.higher_is_better, static_cast<int>(c.meaning.kind), number(c.at_bytes),
            number(c.a_peak_bytes), number(c.b_peak_bytes), number(c.noise), c.implied, c.length);
    }

    void write_contrasts() {
        table("contrasts", {"a",           "aBudget",  "b",
                            "bBudget",     "protocol", "task",
                            "metric",      "family",   "method",
                            "kind",        "verdict",  "planned",
                            "lowOpen",     "highOpen", "within",
                            "nonInferior", "beyond",   "marginLow",
                            "marginHigh",  "pWithin",  "pNonInferior",
                            "meanA",       "meanB",    "effect",
                            "low",         "high",     "p",
                            "pAdjusted",   "size",     "seen",
                            "n",           "docs",     "identical",
                            "missing",     "ratio",    "up",
                            "sort",        "bytes",    "peakA",
                            "peakB",       "noise",    "implied",
                            "length"},
              9, [&] {
                  bool cut = false;
                  for (const Contrast &c : summary_.contrasts) {
                      const bool is_left_out =
                          level_ >= 4 && c.kind == Contrast::Kind::pair && !c.planned;
                      cut = cut || is_left_out;
                      if (!is_left_out) write_contrast(c);
                  }
                  if (cut)
                      left_out("exploratory contrasts between two arms that are not the reference");
                  for (const Contrast &c : summary_.equal_bytes) write_contrast(c);
                  for (const Contrast &c : summary_.noise) write_contrast(c);
              });
    }

    void write_speeds() {
        table("speeds",
              {"arm", "budget", "protocol", "task", "metric", "length", "n", "median", "p25", "p75",
               "p99"},
              5, [&] {
                  for (const SpeedRow &s : summary_.speeds)
                      row(s.key, s.length, s.items, number(s.median), number(s.p25), number(s.p75),
                          number(s.p99));
              });
    }

    // Prompts may be a few tokens shorter or longer than the length in the task. So lengths within
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

    // The depths of a heat map: those of the items, or equal parts if there are many.
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

    // The items of one task that have a depth: their means by length and depth.
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
            out_.begin_object().member("task", texts_(task));
            list("lengths", true, [&] {
                for (const int64_t length : lengths) out_.value(length);
            });
            list("depths", true, [&] {
                for (const double depth : depths.values) put(number(depth));
            });
            list("cells", true, [&] {
                for (const Cell &cell : table_.cells) {
                    if (cell.task == task && cell.kind.is_quality())
                        write_heat_cell(cell, lengths, depths);
                }
            });
            out_.end_object();
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
        out_.begin_array();
        row(static_cast<const CellKey &>(cell));
        out_.begin_array();
        for (size_t i = 0; i < sums.size(); ++i) {
            if (counts[i] == 0) {
                out_.null();
            } else {
                out_.raw(fmt::format("{:.4g}", sums[i] / counts[i]));
            }
        }
        out_.end_array();
        out_.begin_array();
        for (const uint32_t count : counts) out_.value(count);
        out_.end_array();
        put(cell.kind.higher_is_better);
        out_.end_array();
    }

    void write_curves() {
        for (const auto &[key, curve] : table_.curves) {
            const size_t n = curve.mean.size();
            if (n == 0) continue;
            const size_t step = (n + most_curve_points - 1) / most_curve_points;
            out_.begin_array().begin_array();
            put(key.first);
            out_.value(texts_(key.second)).end_array().value(curve.items[0]).begin_array();
            for (size_t from = 0; from < n; from += step) {
                double sum = 0, weight = 0, error = 0;
                const size_t to = std::min(n, from + step);
                for (size_t i = from; i < to; ++i) {
                    const double items = curve.items[i];
                    sum += curve.mean[i] * items;
                    weight += items;
                    // The values of neighbours are correlated, so the error of their mean is the
                    // mean of their errors.
                    if (items > 1)
                        error += std::sqrt(curve.squares[i] / (items - 1) / items) /
                                 static_cast<double>(to - from);
                }
                row(number((static_cast<double>(from + to) - 1) / 2), number(sum / weight),
                    number(error));
            }
            out_.end_array().end_array();
        }
    }

    void write_timelines() {
        if (table_.timelines.empty()) return;
        const size_t most = std::clamp<size_t>(timeline_points / table_.timelines.size(), 20, 300);
        for (const auto &[key, timeline] : table_.timelines) {
            const size_t n = timeline.points.size(), step = (n + most - 1) / most;
            out_.begin_array();
            row(key);
            out_.value(timeline.item).begin_array();
            uint64_t evicted = 0;
            for (size_t i = 0; i < n; ++i) {
                evicted += timeline.points[i][2];
                // The last point of each stretch represents it, with the sum of its evictions.
                if (i % step != step - 1 && i + 1 != n) continue;
                row(timeline.points[i][0], timeline.points[i][1], evicted);
                evicted = 0;
            }
            out_.end_array().end_array();
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
            out_.begin_array();
            row(key);
            out_.value(map.layers).value(map.kv_heads).value(map.items).value(bins).end_array();
        }
        if (skipped > 0)
            notes_.push_back(fmt::format(
                "{} of {} keep maps are left out of this page, which would be too large: "
                "results.jsonl has them",
                skipped, table_.keep_maps.size()));
    }

    const Table &table_;
    const Summary &summary_;
    int level_;
    JsonWriter out_;
    Texts texts_;
    std::vector<std::string> notes_;
};

} // namespace

std::string report_data(const Table &table, const Summary &summary, int level) {
    return DataWriter(table, summary, level).write();
}

} // namespace keel::ab
