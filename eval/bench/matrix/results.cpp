#include "eval/bench/matrix/page.hpp"

#include "base/error.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>

namespace keel {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uint64_t largest_file = uint64_t{8} << 20;
constexpr size_t most_files = 20'000;
constexpr int deepest = 32;
constexpr size_t longest_text = 500;

// A member, or null: results of other versions may lack some.
const Json &member(const Json &object, const char *key) {
    static const Json none;
    if (!object.is_object()) return none;
    const auto found = object.find(key);
    return found == object.end() ? none : *found;
}

std::string text(const Json &value) {
    return value.is_string() ? value.get<std::string>().substr(0, longest_text) : std::string{};
}

std::optional<double> number(const Json &value) {
    if (!value.is_number() || !std::isfinite(value.get<double>())) return std::nullopt;
    return value.get<double>();
}

std::optional<int64_t> whole(const Json &value) {
    const auto found = number(value);
    if (!found || std::abs(*found) > 1e15) return std::nullopt;
    return static_cast<int64_t>(*found);
}

std::optional<BenchRate> rate(const Json &test, const char *share) {
    const Json &spread = member(test, "tokens_per_second");
    const auto median = number(member(spread, "median"));
    if (!median || *median < 0) return std::nullopt;
    BenchRate r;
    r.median = *median;
    r.min = std::min(*median, number(member(spread, "min")).value_or(*median));
    r.max = std::max(*median, number(member(spread, "max")).value_or(*median));
    r.share = number(member(test, share));
    return r;
}

BenchLine common_line(const Json &json, const Json &result, const fs::path &file) {
    BenchLine line;
    line.file = file.string();
    line.commit = text(member(json, "commit"));
    line.date = text(member(json, "date"));
    line.version = text(member(result, "version"));
    line.machine = text(member(member(result, "machine"), "cpu"));
    const Json &model = member(result, "model"), &kv = member(result, "kv"), &axes = member(json, "axes");
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

void add_lines(const Json &json, const fs::path &file, std::vector<BenchLine> &lines) {
    const bool is_run = text(member(json, "format")) == "keel-bench-run/1";
    const Json &result = is_run ? member(json, "result") : json;
    const Json &prefill = member(result, "prefill"), &decode = member(result, "decode");
    if (!prefill.is_array() || !decode.is_array() || !member(result, "model").is_object())
        throw_error(
            ErrorKind::input,
            "{}: expected a result of `keel bench matrix` or `keel bench --json`, found something else",
            file.string());
    constexpr size_t most_tests = 1000;
    const size_t n = std::min(std::max(prefill.size(), decode.size()), most_tests);
    for (size_t i = 0; i < n; ++i) {
        BenchLine line = common_line(json, result, file);
        if (i < prefill.size()) {
            line.prefill_tokens = whole(member(prefill[i], "tokens"));
            line.prefill = rate(prefill[i], "of_peak");
        }
        if (i < decode.size()) {
            line.depth = whole(member(decode[i], "depth"));
            line.decode = rate(decode[i], "of_bandwidth");
            line.sequences = std::max<int64_t>(1, whole(member(decode[i], "sequences")).value_or(1));
            line.kv_bytes = number(member(decode[i], "kv_bytes"));
        }
        lines.push_back(std::move(line));
    }
}

void load_file(const fs::path &file, std::vector<BenchLine> &lines) {
    const std::string content = read_text_file(file, largest_file);
    Json json;
    try {
        json = Json::parse(content, [&](int depth, Json::parse_event_t, Json &) {
            if (depth > deepest)
                throw_error(ErrorKind::input, "{}: JSON nested more than {} deep", file.string(), deepest);
            return true;
        });
    } catch (const Json::exception &) {
        throw_error(ErrorKind::input, "{}: expected JSON, found something else", file.string());
    }
    add_lines(json, file, lines);
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
        for (auto it = fs::directory_iterator(path, error); !error && it != fs::directory_iterator();
             it.increment(error)) {
            if (it->path().extension() == ".json") here.push_back(it->path());
            if (here.size() > most_files)
                throw_error(ErrorKind::input, "{}: more than {} results", path.string(), most_files);
        }
        if (error) throw_error(ErrorKind::input, "{}: {}", path.string(), error.message());
        if (here.empty())
            throw_error(ErrorKind::input, "{}: there are no results (.json files) in this folder",
                        path.string());
        std::sort(here.begin(), here.end());
        files.insert(files.end(), here.begin(), here.end());
    }
    std::vector<BenchLine> lines;
    for (const fs::path &file : files)
        load_file(file, lines);
    return lines;
}

} // namespace keel
