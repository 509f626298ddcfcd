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

// One line of an eviction log: the effect of an eviction on one layer.
struct LogLine {
    uint64_t sequence = 0;
    int64_t tokens = 0;
    std::string time, trigger, policy, allocator; // may be empty in logs of older versions
    double seconds = 0;
    uint32_t layer = 0, heads = 0;
    int64_t budget = 0; // 0: not in the log
    int64_t held = 0, kept_min = 0, kept_max = 0;
    // evicted: in all heads; evicted_max: in the head that lost most
    int64_t evicted = 0, evicted_max = 0;
    uint64_t freed_bytes = 0;
    double microseconds = 0;
    int64_t moved_keys = 0;
    std::vector<int64_t> kept;                   // [heads]; empty: not in the log
    std::vector<std::vector<TokenRun>> runs;     // [heads]; empty: policy.log_positions was off
    std::optional<std::array<double, 5>> scores; // min, quartiles, max
    double pressure_share = 1;
    std::string pressure; // the reason why memory was short; empty: it was not short
    // Of the model, see EvictionSource. 0: no layer keeps only a window.
    uint32_t windowed_layers = 0, all_layers = 0;
    int64_t window = 0;
};

struct LogHistory {
    std::string file;
    std::vector<LogLine> lines; // in the order of the file
    bool is_cut_off = false;    // the run was killed in the last line, so the line was left out
};

// Reads a log. Nothing in it is trusted. Throws Error(input) "FILE:LINE: expected ..., found ..."
// for the first invalid line.
LogHistory read_eviction_log(const std::filesystem::path &path);
// Reads a log from `content`. `name` is used in messages.
LogHistory parse_eviction_log(std::string_view content, const std::string &name);

// A layer of one sequence, with its lines, oldest first.
struct LogLayer {
    uint32_t layer = 0, heads = 0;
    std::vector<size_t> lines; // indices into LogHistory::lines
};
// The layers of `sequence`; NULL: of the sequence with the most lines.
std::vector<LogLayer> log_layers(const LogHistory &history,
                                 std::optional<uint64_t> sequence = std::nullopt);
uint64_t longest_sequence(const LogHistory &history);

// The tokens that were left after each eviction of a sequence: in one head of a layer, or as a mean
// over its heads.
struct KeepPicture {
    uint32_t layer = 0;
    std::optional<uint32_t> head; // nullopt: the mean over the heads
    int64_t tokens = 0;           // positions are from 0 to tokens - 1
    std::vector<int64_t> at;      // [columns] tokens so far at each of these evictions
    std::vector<std::string> why; // [columns] the trigger of each eviction
    size_t bins = 0;              // positions are divided into this many bins of equal width
    // [columns, bins] The share of a bin's tokens that were left. Below 0: none of its tokens
    // existed yet.
    std::vector<float> share;
};
// At most `columns` evictions, evenly chosen with the last one among them, and at most `bins` bins.
// Without columns if the log has no positions.
KeepPicture keep_picture(const LogHistory &history, const LogLayer &layer,
                         std::optional<uint32_t> head, size_t columns, size_t bins);

// The contents of a log as text and as JSON. `layer` and `head` choose what the text draws.
struct LogView {
    std::optional<uint64_t> sequence;
    std::optional<uint32_t> layer, head;
};
std::string log_text(const LogHistory &history, const LogView &view);
nlohmann::ordered_json log_json(const LogHistory &history);

// A mark near the beginning of each page. It shows that the page may be overwritten.
inline constexpr std::string_view log_html_mark = "<meta name=generator content=\"keel eval log\">";
// One page with everything, without external files.
std::string log_html(const LogHistory &history, const LogView &view);

// ---- Used by log_text(), log_json() and log_html() ----

struct LogTotals {
    struct Layer {
        uint32_t layer = 0, heads = 0;
        uint64_t lines = 0, freed_bytes = 0;
        double kept_sum = 0; // sum over lines of the mean number of kept slots
        int64_t kept_min = 0, kept_max = 0;
        std::vector<double> head_kept_sum; // [heads]; empty: not in the log
    };
    uint64_t evictions = 0, sequences = 0;
    // Bytes of freed blocks. freed_bytes: summed over evictions, so a block that is freed twice
    // counts twice. freed_most: of the eviction that freed the most.
    uint64_t freed_bytes = 0, freed_most = 0;
    // slots: of the head that lost most, summed over evictions. slots_in_all: of all layers and
    // heads.
    uint64_t slots = 0, slots_in_all = 0;
    std::vector<std::pair<std::string, uint64_t>> triggers; // the most frequent first
    std::vector<std::string> policies, allocators;
    // Text about the layers on which the policy acts; empty: all layers.
    std::string acts_on;
    uint32_t windowed_layers = 0, all_layers = 0;
    int64_t window = 0;
    std::vector<Layer> layers;
    double us_median = 0, us_p99 = 0, us_max = 0, us_total = 0; // time of whole evictions
    bool has_positions = false;
};
LogTotals log_totals(const LogHistory &history);

// The lines [begin, end) of one eviction.
struct LogEviction {
    size_t begin = 0, end = 0;
};
std::vector<LogEviction> log_evictions(const LogHistory &history);

} // namespace keel
