#pragma once

#include "kv/evict/eviction_log.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// One line of an eviction log: what an eviction did to one layer.
struct LogLine {
    uint64_t sequence = 0;
    int64_t tokens = 0;
    std::string time, trigger, policy, allocator; // may be empty, in logs of older versions
    double seconds = 0;
    uint32_t layer = 0, heads = 0;
    int64_t budget = 0; // 0: not told
    int64_t held = 0, kept_min = 0, kept_max = 0;
    int64_t evicted = 0, evicted_max = 0; // of all heads together, of the head that lost most
    uint64_t freed_bytes = 0;
    double microseconds = 0;
    int64_t moved_keys = 0;
    std::vector<int64_t> kept;                   // [heads], or empty
    std::vector<std::vector<TokenRun>> runs;     // [heads], or empty: policy.log_positions was off
    std::optional<std::array<double, 5>> scores; // min, quartiles, max
    double pressure_share = 1;
    std::string pressure; // why memory was short; empty: it was not
    // Of the model, see EvictionSource. 0: no layer holds only a window.
    uint32_t windowed_layers = 0, all_layers = 0;
    int64_t window = 0;
};

struct LogHistory {
    std::string file;
    std::vector<LogLine> lines; // in the order of the file
    bool is_cut_off = false;    // the last line had no end and was left out: the run was killed
};

// Reads a log. Nothing in it is trusted: Error(input) "FILE:LINE: expected ..., found ..." for the
// first line that is none.
LogHistory read_eviction_log(const std::filesystem::path &path);
// The same of what a file holds; `name` is what messages show.
LogHistory parse_eviction_log(std::string_view content, const std::string &name);

// A layer of one sequence: where its lines are, oldest first.
struct LogLayer {
    uint32_t layer = 0, heads = 0;
    std::vector<size_t> lines; // into LogHistory::lines
};
// The layers of a sequence; NULL picks the sequence with the most lines.
std::vector<LogLayer> log_layers(const LogHistory &history,
                                 std::optional<uint64_t> sequence = std::nullopt);
uint64_t longest_sequence(const LogHistory &history);

// Which of the tokens so far one head (or all heads of a layer) had left, over the evictions of a
// sequence.
struct KeepPicture {
    uint32_t layer = 0;
    std::optional<uint32_t> head; // nullopt: the mean over the heads
    int64_t tokens = 0;           // the positions reach from 0 to here
    std::vector<int64_t> at;      // [columns] tokens seen at each of these evictions
    std::vector<std::string> why; // [columns] triggers
    size_t bins = 0;              // of equal width over the positions
    std::vector<float>
        share; // [columns, bins] of a bin's tokens that were left; below 0: none had come yet
};
// At most `columns` evictions, evenly chosen (the last one among them), in at most `bins`
// stretches. No columns if the log has no positions.
KeepPicture keep_picture(const LogHistory &history, const LogLayer &layer,
                         std::optional<uint32_t> head, size_t columns, size_t bins);

// What a log comes to, for people and as JSON. `layer` and `head` choose what the text draws.
struct LogView {
    std::optional<uint64_t> sequence;
    std::optional<uint32_t> layer, head;
};
std::string log_text(const LogHistory &history, const LogView &view);
nlohmann::ordered_json log_json(const LogHistory &history);

// Stands near the beginning of each page, to tell it from somebody's own.
inline constexpr std::string_view log_html_mark = "<meta name=generator content=\"keel eval log\">";
// One page with everything, which needs nothing from anywhere else.
std::string log_html(const LogHistory &history, const LogView &view);

// ---- for the three above ----

struct LogTotals {
    struct Layer {
        uint32_t layer = 0, heads = 0;
        uint64_t lines = 0, freed_bytes = 0;
        double kept_sum = 0; // of kept means per line
        int64_t kept_min = 0, kept_max = 0;
        std::vector<double> head_kept_sum; // [heads]; empty: not in the log
    };
    uint64_t evictions = 0, sequences = 0;
    // Bytes of freed blocks: summed over evictions (a block that was used and freed again counts
    // again), and of the eviction that freed the most.
    uint64_t freed_bytes = 0, freed_most = 0;
    uint64_t slots = 0,
             slots_in_all =
                 0; // of the head that lost most, summed over evictions; of all layers and heads
    std::vector<std::pair<std::string, uint64_t>> triggers; // by count
    std::vector<std::string> policies, allocators;
    // Text that says on which layers the policy acts; empty: on all.
    std::string acts_on;
    uint32_t windowed_layers = 0, all_layers = 0;
    int64_t window = 0;
    std::vector<Layer> layers;
    double us_median = 0, us_p99 = 0, us_max = 0, us_total = 0; // of whole evictions
    bool has_positions = false;
};
LogTotals log_totals(const LogHistory &history);

// Lines of the same eviction, [begin, end).
struct LogEviction {
    size_t begin = 0, end = 0;
};
std::vector<LogEviction> log_evictions(const LogHistory &history);

} // namespace keel
