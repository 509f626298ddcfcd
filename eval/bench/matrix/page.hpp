#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// A rate with the range of its rounds.
struct BenchRate {
    double median = 0, min = 0, max = 0;
    // Share of the machine's limit, which was measured in the same round.
    std::optional<double> share;
};

// One line of a report: for a prompt length, for a depth, or for both.
struct BenchLine {
    std::string name, model, weights, backend, kv, policy, sync, machine, version, commit, date,
        file;
    std::optional<int64_t> prefill_tokens, depth;
    int64_t sequences = 1;                    // sequences that decoded together
    std::optional<BenchRate> prefill, decode; // tokens per second of all sequences together
    // Cache plus policy at the end of the decode, and at the peak. Results of older versions have
    // only the cache at the end, and no peak.
    std::optional<double> held_bytes, held_peak_bytes;
    std::optional<double> peak_bytes, load_seconds, read_bandwidth; // peak_bytes: of the process
};

// Reads results of `keel bench matrix` and `keel bench --json`: files, and all .json files of
// folders. Throws Error(input) with the file's name for other files. Nothing in the files is
// trusted.
std::vector<BenchLine> load_bench_lines(const std::vector<std::filesystem::path> &paths);

// A mark near the beginning of each page. It shows that the page may be overwritten.
inline constexpr std::string_view bench_html_mark =
    "<meta name=generator content=\"keel bench report\">";

// One page with tables and charts, without external files.
std::string bench_html(const std::vector<BenchLine> &lines, const std::string &title);

} // namespace keel
