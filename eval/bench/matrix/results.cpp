#include "eval/bench/matrix/page.hpp"

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <cmath>
#include <system_error>

namespace keel {
namespace {

namespace fs = std::filesystem;
using Maybe = std::optional<JsonNode>;

constexpr uint64_t largest_file = uint64_t{8} << 20;
constexpr size_t most_files = 20'000;
constexpr size_t longest_text = 500;

// A member with another type counts as missing, because results of other versions of Keel can have
// a different type.
Maybe member(const Maybe &object, const char *key) {
    return object && object->is_object() ? object->find(key) : std::nullopt;
}

std::string text(const Maybe &value) {
    return value && value->is_text() ? value->text().substr(0, longest_text) : std::string{};
}

std::optional<double> number(const Maybe &value) {
    return value && value->is_number() ? std::optional(value->number()) : std::nullopt;
}

std::optional<int64_t> whole(const Maybe &value) {
    const auto found = number(value);
    if (!found || std::abs(*found) > 1e15) return std::nullopt;
    return static_cast<int64_t>(*found);
}

std::optional<BenchRate> rate(const JsonNode &test, const char *share) {
    const Maybe spread = member(test, "tokens_per_second");
    const auto median = number(member(spread, "median"));
    if (!median || *median < 0) return std::nullopt;
    BenchRate r;
    r.median = *median;
    r.min = std::min(*median, number(member(spread, "min")).value_or(*median));
    r.max = std::max(*median, number(member(spread, "max")).value_or(*median));
    r.share = number(member(test, share));
    return r;
}

BenchLine common_line(const Maybe &json, const Maybe &result, const fs::path &file) {
    BenchLine line;
    line.file = file.string();
    line.commit = text(member(json, "commit"));
    line.date = text(member(json, "date"));
    line.version = text(member(result, "version"));
    line.machine = text(member(member(result, "machine"), "cpu"));
    const Maybe model = member(result, "model"), kv = member(result, "kv"),
                axes = member(json, "axes");
    line.model = text(member(axes, "model"));
    if (line.model.empty()) line.model = fs::path(text(member(model, "path"))).filename().string();
    line.weights = text(member(model, "weights"));
    line.backend = text(member(axes, "backend"));
    if (line.backend.empty()) line.backend = text(member(member(result, "backend"), "plugin"));
    const std::string key = text(member(kv, "key_dtype")), value = text(member(kv, "value_dtype"));
    line.kv = key == value ? key : key + "/" + value;
    line.policy = text(member(axes, "policy"));
    if (line.policy.empty()) line.policy = text(member(kv, "policy"));
    const std::string sync = text(member(axes, "sync"));
    line.sync = sync.empty() ? text(member(member(result, "backend"), "sync")) : sync;
    line.name = fmt::format("{} {} / {} / {} / {}{}", line.model, line.weights, line.backend,
                            line.kv, line.policy, sync.empty() ? "" : " / " + sync);
    line.peak_bytes = number(member(result, "peak_resident_bytes"));
    line.load_seconds = number(member(result, "load_seconds"));
    line.read_bandwidth = number(member(member(result, "probe"), "read_bytes_per_second"));
    return line;
}

void load_file(const fs::path &file, std::vector<BenchLine> &lines) {
    const std::string content = read_text_file(file, largest_file);
    const JsonDocument document(content, file.string(), {largest_file});
    const Maybe json = document.root();
    const bool is_run = text(member(json, "format")) == "keel-bench-run/1";
    const Maybe result = is_run ? member(json, "result") : json;
    const Maybe prefill = member(result, "prefill"), decode = member(result, "decode");
    if (!prefill || !prefill->is_array() || !decode || !decode->is_array() ||
        !member(result, "model"))
        throw_error(ErrorKind::input,
                    "{}: expected a result of `keel bench matrix` or `keel bench --json`, found "
                    "another kind of JSON",
                    file.string());
    constexpr size_t most_tests = 1000;
    const size_t n = std::min(std::max(prefill->size(), decode->size()), most_tests);
    for (size_t i = 0; i < n; ++i) {
        BenchLine line = common_line(json, result, file);
        if (i < prefill->size()) {
            const JsonNode test = prefill->element(i);
            line.prefill_tokens = whole(member(test, "tokens"));
            line.prefill = rate(test, "of_peak");
        }
        if (i < decode->size()) {
            const JsonNode test = decode->element(i);
            line.depth = whole(member(test, "depth"));
            line.decode = rate(test, "of_bandwidth");
            line.sequences = std::max<int64_t>(1, whole(member(test, "sequences")).value_or(1));
            line.held_bytes = number(member(test, "held_bytes"));
            if (!line.held_bytes) line.held_bytes = number(member(test, "kv_bytes"));
            line.held_peak_bytes = number(member(test, "held_peak_bytes"));
        }
        lines.push_back(std::move(line));
    }
}

} // namespace

std::vector<BenchLine> load_bench_lines(const std::vector<fs::path> &paths) {
    std::vector<fs::path> files;
    for (const fs::path &path : paths) {
        std::error_code error;
        if (!fs::is_directory(path, error)) {
            files.push_back(path);
            continue;
        }
        std::vector<fs::path> here;
        for (auto it = fs::directory_iterator(path, error);
             !error && it != fs::directory_iterator(); it.increment(error)) {
            if (it->path().extension() == ".json") here.push_back(it->path());
            if (here.size() > most_files)
                throw_error(ErrorKind::input, "{}: the folder has more than {} results, the limit",
                            path.string(), most_files);
        }
        if (error) throw_error(ErrorKind::input, "{}: {}", path.string(), error.message());
        if (here.empty())
            throw_error(ErrorKind::input, "{}: there are no results (.json files) in this folder",
                        path.string());
        std::sort(here.begin(), here.end());
        files.insert(files.end(), here.begin(), here.end());
    }
    std::vector<BenchLine> lines;
    for (const fs::path &file : files) load_file(file, lines);
    return lines;
}

} // namespace keel
