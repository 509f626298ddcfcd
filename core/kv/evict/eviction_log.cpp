#include "kv/evict/eviction_log.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "platform/clock.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace keel {
namespace {

namespace fs = std::filesystem;

// The start of every record, see to_json().
constexpr std::string_view first_key = R"({"sequence":)";

// Infinity and NaN become null, because JSON does not have them.
std::string number(double value) {
    return std::isfinite(value) ? fmt::format("{:.6g}", value) : "null";
}

std::string quoted(const std::string &text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (static_cast<unsigned char>(c) < 0x20) {
            out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
            out += c;
        }
    }
    return out + '"';
}

[[noreturn]] void refuse(const std::string &path, std::string_view why) {
    throw_key_error(ErrorKind::input, "policy.log", "{} cannot be written: {}", path, why);
}

// Checks that the file can be opened for writing. Does not create or empty the file.
void check_writable(const fs::path &path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status)) refuse(path.string(), "this path is a folder; name a file");
    const bool exists = fs::exists(status);
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (!exists && !fs::is_directory(folder, error))
        refuse(path.string(), "there is no folder " + folder.string() + "; create it first");
    if (::access((exists ? path : folder).c_str(), exists ? W_OK : W_OK | X_OK) != 0)
        refuse(path.string(), std::strerror(errno));
    if (!fs::is_regular_file(status) || fs::file_size(path, error) == 0) return;
    // A run begins with an empty log. But a file that is not an eviction log must not be
    // overwritten, because it could be the user's pipeline file.
    std::ifstream in(path, std::ios::binary);
    std::string begin(first_key.size(), '\0');
    in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
    if (begin != first_key)
        refuse(path.string(), "the file exists and is not an eviction log; name another file");
}

// The log files of this process. If two logs used one file, each would empty it, and their lines
// would mix.
struct Claims {
    std::mutex mutex;
    std::set<std::string> paths;
};
Claims &claims() {
    static Claims all;
    return all;
}

std::string claim(const fs::path &path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::exists(status) && !fs::is_regular_file(status)) return {}; // for example /dev/null
    const fs::path canonical = fs::weakly_canonical(path, error);
    const std::string key = error ? path.string() : canonical.string();
    const std::lock_guard lock(claims().mutex);
    if (!claims().paths.insert(key).second) {
        throw_key_error(ErrorKind::input, "policy.log",
                        "another pipeline of this process already writes an eviction log to {}; "
                        "give each pipeline a separate file (policy.log=null: no log)",
                        path.string());
    }
    return key;
}

} // namespace

const char *trigger_name(keel_trigger trigger) {
    switch (trigger) {
    case KEEL_TRIGGER_PREFILL_END: return "prefill_end";
    case KEEL_TRIGGER_BUDGET: return "budget";
    case KEEL_TRIGGER_INSERT: return "insert";
    case KEEL_TRIGGER_EVERY_N: return "every_n";
    case KEEL_TRIGGER_PRESSURE: return "pressure";
    case KEEL_TRIGGER_CHUNK: return "chunk";
    default: return "?";
    }
}

void EvictionRecord::summarize(std::span<const float> scores, std::span<const int32_t> lengths,
                               int64_t stride, uint32_t n_heads) {
    std::vector<float> all;
    for (uint32_t h = 0; h < n_heads; ++h) {
        const auto row =
            scores.subspan(static_cast<size_t>(h * stride), static_cast<size_t>(lengths[h]));
        all.insert(all.end(), row.begin(), row.end());
    }
    if (all.empty()) return;
    std::sort(all.begin(), all.end());
    const auto quantile = [&](size_t quarter) { return all[(all.size() - 1) * quarter / 4]; };
    score_min = quantile(0);
    score_p25 = quantile(1);
    score_median = quantile(2);
    score_p75 = quantile(3);
    score_max = quantile(4);
    has_scores = true;
}

std::vector<TokenRun> token_runs(std::span<const int32_t> rising) {
    std::vector<TokenRun> runs;
    for (const int32_t token : rising) {
        if (runs.empty() || runs.back().to != token) runs.push_back({token, token});
        ++runs.back().to;
    }
    return runs;
}

std::string params_json(const keel_param *const *params, uint32_t n) {
    std::string out = "{";
    for (uint32_t i = 0; i < n; ++i) {
        const keel_param &p = *params[i];
        out += fmt::format("{}{}:", i == 0 ? "" : ",", quoted(p.key));
        switch (p.type) {
        case KEEL_PARAM_INT: out += fmt::format("{}", p.i); break;
        case KEEL_PARAM_BOOL: out += p.i != 0 ? "true" : "false"; break;
        case KEEL_PARAM_FLOAT: out += number(p.f); break;
        default: out += p.s != nullptr ? quoted(p.s) : "null";
        }
    }
    return out + '}';
}

std::string windows_text(uint32_t windowed_layers, uint32_t all_layers, int64_t window) {
    return fmt::format("the policy acts on {} of {} layers; the other {} layers hold only their "
                       "window of {} tokens",
                       all_layers - windowed_layers, all_layers, windowed_layers, window);
}

std::string to_json(const EvictionRecord &r, const EvictionSource &source) {
    std::string line = fmt::format(
        R"({{"sequence":{},"tokens":{},"time":"{}","seconds":{:.6f},"trigger":"{}","policy":{})",
        r.sequence, r.tokens, utc_text(r.when, TimeUnit::milliseconds), r.seconds,
        trigger_name(r.trigger), quoted(source.policy));
    if (!source.allocator.empty()) {
        line += fmt::format(R"(,"allocator":{{"plugin":{},"params":{}}})", quoted(source.allocator),
                            source.allocator_params.empty() ? "{}" : source.allocator_params);
    }
    if (source.windowed_layers > 0) {
        line += fmt::format(R"(,"windows":{{"layers":{},"of":{},"tokens":{}}})",
                            source.windowed_layers, source.all_layers, source.window);
    }
    if (r.rule != nullptr) line += fmt::format(R"(,"rule":{})", quoted(r.rule));
    line += fmt::format(
        R"(,"layer":{},"heads":{},"budget":{},"held":{},"kept_min":{},"kept_max":{},"evicted":{},)"
        R"("evicted_max":{},)"
        R"("freed_bytes":{},"moved_keys":{},"microseconds":{:.1f})",
        r.layer, r.heads, r.budget, r.held_max, r.kept_min, r.kept_max, r.evicted, r.evicted_max,
        r.freed_bytes, r.moved_keys, r.microseconds);
    if (r.pressure) {
        const PressureState &p = *r.pressure;
        line += fmt::format(
            R"(,"pressure":{{"step":{},"share":{},"available_bytes":{},"low_bytes":{},)"
            R"("limited_by":{},)"
            R"("stalled_percent":{},"why":{}}})",
            p.level, number(p.share), p.available, p.low, quoted(printable(p.limited_by, 400)),
            p.stalled ? number(*p.stalled) : "null", quoted(printable(p.why, 600)));
    }
    if (r.has_scores) {
        line += fmt::format(R"(,"scores":{{"min":{},"p25":{},"median":{},"p75":{},"max":{}}})",
                            number(r.score_min), number(r.score_p25), number(r.score_median),
                            number(r.score_p75), number(r.score_max));
    }
    if (!r.kept.empty()) line += fmt::format(R"(,"kept":[{}])", fmt::join(r.kept, ","));
    if (!r.tokens_kept.empty()) {
        line += R"(,"kept_tokens":[)";
        for (size_t h = 0; h < r.tokens_kept.size(); ++h) {
            line += h == 0 ? "[" : ",[";
            for (size_t i = 0; i < r.tokens_kept[h].size(); ++i)
                line += fmt::format("{}[{},{}]", i == 0 ? "" : ",", r.tokens_kept[h][i].from,
                                    r.tokens_kept[h][i].to);
            line += ']';
        }
        line += ']';
    }
    return line + '}';
}

EvictionLog::EvictionLog(const std::string &path, EvictionSource source)
    : path_(path), source_(std::move(source)) {
    check_writable(path_);
    claim_ = claim(path_);
}

EvictionLog::~EvictionLog() {
    file_.reset();
    const std::lock_guard lock(claims().mutex);
    claims().paths.erase(claim_);
}

void EvictionLog::open() {
    if (file_) return;
    file_.reset(std::fopen(path_.c_str(), "w"));
    if (!file_) refuse(path_, std::strerror(errno));
}

void EvictionLog::write(const EvictionRecord &record) {
    open();
    const std::string line = to_json(record, source_) + '\n';
    if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
        std::fflush(file_.get()) != 0) {
        throw_key_error(ErrorKind::resource, "policy.log", "{} cannot be written: {}", path_,
                        std::strerror(errno));
    }
}

} // namespace keel
