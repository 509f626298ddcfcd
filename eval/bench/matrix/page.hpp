#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// A number with the range of its repeats.
struct BenchRate {
    double median = 0, min = 0, max = 0;
    std::optional<double> share; // of the machine's limit that was measured beside it
};

// One line of a report: a prompt length, a depth, or one of each.
struct BenchLine {
    std::string name, model, weights, backend, kv, policy, sync, machine, version, commit, date,
        file;
    std::optional<int64_t> prefill_tokens, depth;
    int64_t sequences = 1;                    // that decoded at once
    std::optional<BenchRate> prefill, decode; // tokens per second, of all sequences together
    // Cache plus policy: at the end of the decode, and the peak. Results of older versions have
    // only the cache at the end, and no peak.
    std::optional<double> held_bytes, held_peak_bytes;
    std::optional<double> peak_bytes, load_seconds, read_bandwidth; // peak: of the process
};

// Reads results of `keel bench matrix` and `keel bench --json`: files, and all .json files of
// folders. Throws Error(input) naming the file that is something else; nothing in them is trusted.
std::vector<BenchLine> load_bench_lines(const std::vector<std::filesystem::path> &paths);

// Stands near the beginning of each page: what tells it from somebody's own.
inline constexpr std::string_view bench_html_mark =
    "<meta name=generator content=\"keel bench report\">";

// One page with tables and charts, which needs nothing from anywhere else.
std::string bench_html(const std::vector<BenchLine> &lines, const std::string &title);

} // namespace keel
