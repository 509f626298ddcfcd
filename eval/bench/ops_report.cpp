// The tables of `keel bench` that list the time of each op.
#include "eval/bench/report.hpp"

#include "eval/page/text_table.hpp"
#include "eval/stats/optional_text.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

using Json = nlohmann::ordered_json;

// `value` as a share of `limit`. nullopt if the limit was not measured, or if the work was not
// counted.
std::optional<double> share(double value, double limit) {
    if (value <= 0 || limit <= 0) return std::nullopt;
    return value / limit;
}

std::string giga_or_dash(double value) { return value > 0 ? rate_text(value / 1e9) : "-"; }

// The speed of the op as a share of the f32 peak. nullopt if the f32 peak does not limit the op.
std::optional<double> peak_share(const OpTotal &op, double peak) {
    return op.f32_peak_limits ? share(op.flops(), peak) : std::nullopt;
}

OpTotal sum(const std::vector<OpTotal> &ops) {
    OpTotal all;
    all.f32_peak_limits = true;
    for (const OpTotal &op : ops) {
        if (op.flop > 0 && !op.f32_peak_limits) all.f32_peak_limits = false;
        all.calls += op.calls;
        all.seconds += op.seconds;
        all.flop += op.flop;
        all.bytes += op.bytes;
    }
    return all;
}

// Returns the number of passes in a result. The times in the table are for one pass: the whole
// prompt, or one decoded token.
double passes(const OpsResult &r) {
    return r.is_prefill ? 1 : static_cast<double>(std::max<int64_t>(r.tokens, 1));
}

std::vector<std::string> row(const std::string &name, const OpTotal &op, const OpsResult &r,
                             double peak) {
    return {name,
            rate_text(static_cast<double>(op.calls) / passes(r)),
            rate_text(1000 * op.seconds / passes(r)),
            percent_text(share(op.seconds, r.seconds)),
            giga_or_dash(op.bytes_per_second()),
            percent_text(share(op.bytes_per_second(), r.read)),
            giga_or_dash(op.flops()),
            percent_text(peak_share(op, peak)),
            op.kernel};
}

Json op_json(const OpTotal &op, const OpsResult &r, double peak) {
    return {{"part", op.part},
            {"op", op.op},
            {"kernel", op.kernel},
            {"calls", op.calls},
            {"seconds", op.seconds},
            {"bytes", op.bytes},
            {"flop", op.flop},
            {"share", optional_json(share(op.seconds, r.seconds))},
            {"of_bandwidth", optional_json(share(op.bytes_per_second(), r.read))},
            {"of_peak", optional_json(peak_share(op, peak))}};
}

} // namespace

std::string ops_tables(const BenchReport &report) {
    std::string out;
    for (const OpsResult &r : report.ops) {
        const std::string name = r.is_prefill ? fmt::format("prefill of {}", r.tokens)
                                              : fmt::format("a token at {}", r.depth);
        std::vector<std::vector<std::string>> rows{
            {name, "calls", "ms", "share", "GB/s", "of read", "GFLOP/s", "of peak", "kernel"}};
        for (const OpTotal &op : r.ops) rows.push_back(row(op.part, op, r, report.peak_flops));
        rows.push_back(row("all ops", sum(r.ops), r, report.peak_flops));
        out.append(1, '\n').append(aligned_table(rows));
    }
    return out;
}

Json ops_json(const BenchReport &report) {
    Json out = Json::array();
    for (const OpsResult &r : report.ops) {
        Json ops = Json::array();
        for (const OpTotal &op : r.ops) ops.push_back(op_json(op, r, report.peak_flops));
        out.push_back({{"pass", r.is_prefill ? "prefill" : "decode"},
                       {"tokens", r.tokens},
                       {"depth", r.depth},
                       {"seconds_unwatched", r.seconds},
                       {"read_probe_bytes_per_second", r.read > 0 ? Json(r.read) : Json(nullptr)},
                       {"ops", std::move(ops)}});
    }
    return out;
}

} // namespace keel
