#include "eval/bench/attention/attention_report.hpp"

#include "base/display.hpp"
#include "eval/page/text_table.hpp"
#include "eval/stats/optional_text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>

namespace keel {
namespace {

using Json = nlohmann::ordered_json;

double rate(double flop, const Spread &seconds) {
    return seconds.median > 0 ? flop / seconds.median : 0;
}

// The share of the processor's peak. The peak is that of f32, so it does not limit other types.
std::optional<double> share(const AttentionBenchReport &report, const AttentionTest &test,
                            double flops) {
    if (!report.is_processor || test.shape.dtype != KEEL_DTYPE_F32 || report.peak_flops <= 0)
        return std::nullopt;
    return flops / report.peak_flops;
}

// The cells of one pass: milliseconds, GFLOP/s, share of the peak.
void add_pass(std::vector<std::string> &row, const AttentionBenchReport &report,
              const AttentionTest &test, double flop, const Spread &seconds) {
    if (seconds.samples.empty()) {
        row.insert(row.end(), {"-", "-", "-"});
        return;
    }
    const double flops = rate(flop, seconds);
    row.insert(row.end(), {rate_text(1000 * seconds.median), rate_text(flops / 1e9),
                           percent_text(share(report, test, flops))});
}

std::string shape_text(const AttentionShape &s) {
    return fmt::format("{} {} {} {}", keel_dtype_name(s.dtype), s.head_dim,
                       s.causal ? "causal" : "full", s.length);
}

Json pass_json(double flop, const Spread &seconds) {
    if (seconds.samples.empty()) return nullptr;
    return {{"flop", flop},
            {"seconds", seconds.median},
            {"flops", rate(flop, seconds)},
            {"samples", seconds.samples}};
}

Json test_json(const AttentionTest &test) {
    const AttentionShape &s = test.shape;
    Json json = {{"dtype", keel_dtype_name(s.dtype)},
                 {"batch", s.batch},
                 {"heads", s.heads},
                 {"kv_heads", s.kv_heads},
                 {"head_dim", s.head_dim},
                 {"length", s.length},
                 {"causal", s.causal}};
    if (!test.refused.empty()) {
        json["refused"] = test.refused;
        return json;
    }
    json["forward"] = pass_json(s.forward_flop(), test.seconds.forward);
    json["backward"] = pass_json(s.backward_flop(), test.seconds.backward);
    json["both"] = pass_json(s.forward_flop() + s.backward_flop(), test.seconds.both);
    json["forward_bytes"] = s.forward_bytes();
    json["backward_bytes"] = s.backward_bytes();
    json["scratch_bytes"] = test.scratch_bytes;
    json["logits_bytes"] = s.logits_bytes();
    return json;
}

} // namespace

std::string attention_table(const AttentionBenchReport &report) {
    std::string out =
        fmt::format("backend: {} on '{}': {}\n", report.backend, report.device, report.description);
    if (!report.without.empty()) return out + report.without + "\n";
    const bool backward =
        report.has_backward && std::ranges::any_of(report.tests, [](const AttentionTest &test) {
            return !test.seconds.backward.samples.empty();
        });
    TableRows rows{{"attention", "forward ms", "GFLOP/s", "of peak"}};
    if (backward)
        rows[0].insert(rows[0].end(), {"backward ms", "GFLOP/s", "of peak", "both ms", "GFLOP/s"});
    rows[0].insert(rows[0].end(), {"tensors", "scratch", "all logits"});
    std::string refusals;
    for (const AttentionTest &test : report.tests) {
        const AttentionShape &s = test.shape;
        if (!test.refused.empty()) {
            refusals += fmt::format("{}: not supported: {}\n", shape_text(s), test.refused);
            continue;
        }
        std::vector<std::string> row{shape_text(s)};
        add_pass(row, report, test, s.forward_flop(), test.seconds.forward);
        if (backward) {
            add_pass(row, report, test, s.backward_flop(), test.seconds.backward);
            row.push_back(rate_text(1000 * test.seconds.both.median));
            row.push_back(
                rate_text(rate(s.forward_flop() + s.backward_flop(), test.seconds.both) / 1e9));
        }
        row.push_back(format_bytes(backward ? s.backward_bytes() : s.forward_bytes()));
        row.push_back(format_bytes(test.scratch_bytes));
        row.push_back(format_bytes(s.logits_bytes()));
        rows.push_back(std::move(row));
    }
    out += aligned_table(rows) + refusals;
    if (!report.has_backward) out += "the backend computes no gradients\n";
    if (report.is_processor)
        out += fmt::format("peak of f32 multiply-adds: {} GFLOP/s with {} thread{}\n",
                           rate_text(report.peak_flops / 1e9), report.threads,
                           report.threads == 1 ? "" : "s");
    return out;
}

Json attention_json(const AttentionBenchReport &report) {
    Json json = {{"backend", report.backend},
                 {"device", report.device},
                 {"description", report.description},
                 {"cpu", report.cpu},
                 {"threads", report.threads},
                 {"f32_peak_flops", report.peak_flops},
                 {"rounds", report.repeat}};
    if (!report.without.empty()) {
        json["without"] = report.without;
        return json;
    }
    json["tests"] = Json::array();
    for (const AttentionTest &test : report.tests) json["tests"].push_back(test_json(test));
    return json;
}

} // namespace keel
