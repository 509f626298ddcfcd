#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// A median rate over rounds, with the range of the rounds.
struct BenchRate {
    double median = 0, min = 0, max = 0;
    // Share of the machine's limit, which is measured in the same round.
    std::optional<double> share;
};

// One line of a report: the numbers of a prompt length, of a depth, or of both.
struct BenchLine {
    std::string name, model, weights, backend, kv, policy, sync, machine, version, commit, date,
        file;
    std::optional<int64_t> prefill_tokens, depth;
    int64_t sequences = 1;                    // number of sequences that decode together
    std::optional<BenchRate> prefill, decode; // tokens per second of all sequences together
    // Bytes of cache and policy data at the end of the decode, and at the peak. Results of older
    // versions have only the bytes of the cache at the end, and no peak.
    std::optional<double> held_bytes, held_peak_bytes;
    // peak_bytes: peak of the process
    std::optional<double> peak_bytes, load_seconds, read_bandwidth;
};

// Reads results of `keel bench matrix` and of `keel bench --json`. `paths` are files, and folders
// whose .json files are read. Throws Error(input) with the file's name if a file is not a result of
// these commands. The contents of the files are not trusted.
std::vector<BenchLine> load_bench_lines(const std::vector<std::filesystem::path> &paths);

// A mark near the beginning of each page. Keel is allowed to overwrite a file with this mark.
inline constexpr std::string_view bench_html_mark =
    "<meta name=generator content=\"keel bench report\">";

// Makes one page with tables and charts. The page needs no other files.
std::string bench_html(const std::vector<BenchLine> &lines, const std::string &title);

} // namespace keel
