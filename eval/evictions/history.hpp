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

// One line of an eviction log: what one eviction did in one layer.
struct LogLine {
    uint64_t sequence = 0;
    int64_t tokens = 0;
    std::string time, trigger, policy, allocator; // in logs of older versions, each of these texts
                                                  // can be empty
    double seconds = 0;
    uint32_t layer = 0, heads = 0;
    int64_t budget = 0; // 0 if the log has no budget
    int64_t held = 0, kept_min = 0, kept_max = 0;
    // evicted: slots evicted in all heads together. evicted_max: slots evicted in the head that
    // lost most slots.
    int64_t evicted = 0, evicted_max = 0;
    uint64_t freed_bytes = 0;
    double microseconds = 0;
    int64_t moved_keys = 0;
    std::vector<int64_t> kept;                   // [heads]; empty if the log has no such numbers
    std::vector<std::vector<TokenRun>> runs;     // [heads]; empty: policy.log_positions was off
    std::optional<std::array<double, 5>> scores; // minimum, quartiles, maximum
    double pressure_share = 1;
    std::string pressure; // the reason why memory was short; empty: there was enough memory
    // Numbers about the model, see EvictionSource. windowed_layers is the number of layers that
    // keep only a window. all_layers and window are 0 if no layer keeps only a window.
    uint32_t windowed_layers = 0, all_layers = 0;
    int64_t window = 0;
};

struct LogHistory {
    std::string file;
    std::vector<LogLine> lines; // in the order of the file
    // true: the last line is incomplete, because the run was killed; the line is ignored
    bool is_cut_off = false;
};

// Reads a log. The contents of the log are not trusted. Throws Error(input) "FILE:LINE: expected
// ..., found ..." for the first invalid line.
LogHistory read_eviction_log(const std::filesystem::path &path);
// Reads a log from the text `content`. `name` is the file's name in messages.
LogHistory parse_eviction_log(std::string_view content, const std::string &name);

// A layer of one sequence, with the layer's log lines, oldest first.
struct LogLayer {
    uint32_t layer = 0, heads = 0;
    std::vector<size_t> lines; // indices into LogHistory::lines
};
// Returns the layers of `sequence`. nullopt: the layers of the sequence with the most lines.
std::vector<LogLayer> log_layers(const LogHistory &history,
                                 std::optional<uint64_t> sequence = std::nullopt);
// Returns the sequence with the most lines.
uint64_t longest_sequence(const LogHistory &history);

// The tokens of a sequence that were left after each eviction. The picture shows one head of a
// layer, or the mean over the heads of the layer.
struct KeepPicture {
    uint32_t layer = 0;
    std::optional<uint32_t> head; // nullopt: the mean over all heads
    int64_t tokens = 0;           // number of tokens; positions are from 0 to tokens - 1
    std::vector<int64_t> at;      // [columns] number of tokens at each eviction
    std::vector<std::string> why; // [columns] the trigger of each eviction
    size_t bins = 0;              // number of bins of equal width for the positions
    // [columns, bins] The share of a bin's tokens that were left. Below 0 if no token of the bin
    // existed at the eviction.
    std::vector<float> share;
};
// Makes a picture with at most `columns` evictions and at most `bins` bins. The evictions are
// chosen evenly, and the last eviction is always chosen. The picture has no columns if the log has
// no positions.
KeepPicture keep_picture(const LogHistory &history, const LogLayer &layer,
                         std::optional<uint32_t> head, size_t columns, size_t bins);

// Selects the part of a log that the text and the page draw.
struct LogView {
    std::optional<uint64_t> sequence;
    std::optional<uint32_t> layer, head;
};
std::string log_text(const LogHistory &history, const LogView &view);
nlohmann::ordered_json log_json(const LogHistory &history);

// A mark near the beginning of each page. Keel is allowed to overwrite a file with this mark.
inline constexpr std::string_view log_html_mark = "<meta name=generator content=\"keel eval log\">";
// Makes one page with the whole log. The page needs no other files.
std::string log_html(const LogHistory &history, const LogView &view);

// ---- Used by log_text(), log_json() and log_html() ----

struct LogTotals {
    struct Layer {
        uint32_t layer = 0, heads = 0;
        uint64_t lines = 0, freed_bytes = 0;
        double kept_sum = 0; // sum over lines of the mean number of kept slots
        int64_t kept_min = 0, kept_max = 0;
        std::vector<double> head_kept_sum; // [heads]; empty if the log has no such numbers
    };
    uint64_t evictions = 0, sequences = 0;
    // Bytes of freed blocks. freed_bytes: the sum over evictions; a block that is freed twice
    // counts twice. freed_most: the bytes of the eviction that freed the most bytes.
    uint64_t freed_bytes = 0, freed_most = 0;
    // Numbers of evicted slots, summed over evictions. slots: slots of the head that lost most
    // slots. slots_in_all: slots of all layers and heads.
    uint64_t slots = 0, slots_in_all = 0;
    std::vector<std::pair<std::string, uint64_t>> triggers; // the most frequent trigger comes first
    std::vector<std::string> policies, allocators;
    // Text about the layers on which the policy acts. Empty if the policy acts on all layers.
    std::string acts_on;
    uint32_t windowed_layers = 0, all_layers = 0;
    int64_t window = 0;
    std::vector<Layer> layers;
    double us_median = 0, us_p99 = 0, us_max = 0, us_total = 0; // durations of whole evictions
    bool has_positions = false;
};
LogTotals log_totals(const LogHistory &history);

// One eviction: the lines from `begin` up to, but not including, `end`.
struct LogEviction {
    size_t begin = 0, end = 0;
};
std::vector<LogEviction> log_evictions(const LogHistory &history);

} // namespace keel
