#include "eval/bench/report.hpp"

#include "base/display.hpp"
#include "eval/page/text_table.hpp"
#include "eval/stats/optional_text.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace keel {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

std::string giga(double value) { return rate_text(value / 1e9); }

std::string spread_text(const Spread &s) {
    // One sample alone has no spread.
    return s.median > 0 && s.samples.size() > 1
               ? fmt::format("+-{:.1f}%", 100 * s.deviation / s.median)
               : "-";
}

std::string range_text(const Spread &s) {
    return fmt::format("{}..{}", rate_text(s.min), rate_text(s.max));
}

std::string parameters_text(uint64_t n) {
    const auto x = static_cast<double>(n);
    return n >= 1000000000 ? fmt::format("{:.2f} B", x / 1e9) : fmt::format("{:.1f} M", x / 1e6);
}

std::string heading(const BenchReport &r, std::string_view version) {
    std::string out =
        fmt::format("keel {}{}\n", version, r.commit.empty() ? "" : fmt::format(" ({})", r.commit));
    out += fmt::format("machine: {}, {} processor{}, {}\n",
                       r.cpu.empty() ? "unknown processor" : r.cpu, r.threads,
                       r.threads == 1 ? "" : "s",
                       r.memory_bytes == 0 ? "unknown memory" : format_bytes(r.memory_bytes));
    out += fmt::format("backend: {} on '{}': {}; sync {}\n", r.backend, r.device, r.description,
                       r.sync);
    out += fmt::format("model: {}: {}, {} parameters, weights {}, {} read per token\n", r.model,
                       r.architecture, parameters_text(r.parameters), r.weights,
                       format_bytes(r.weight_bytes_per_token));
    const std::string key = keel_dtype_name(r.key_dtype), value = keel_dtype_name(r.value_dtype);
    out +=
        fmt::format("cache: KV {}, {} per token{}, policy {}\n",
                    key == value ? key : key + " and " + value, format_bytes(r.kv_bytes_per_token),
                    r.kv_window_bytes > 0
                        ? fmt::format(", up to {} for windows", format_bytes(r.kv_window_bytes))
                        : "",
                    r.policy);
    out += fmt::format("loaded in {:.2f} s, at most {} of memory in use\n", r.load_seconds,
                       format_bytes(r.peak_resident_bytes));
    if (r.fallbacks > 0)
        out += fmt::format(
            "{} planned ops do not run on the backend itself; `keel run --explain` lists them\n",
            r.fallbacks);
    return out;
}

std::string prefill_table(const BenchReport &r) {
    std::vector<Row> rows{
        {"prefill", "tokens/s", "spread", "range", "ms", "GFLOP/s", "of peak", "most held"}};
    for (const PrefillResult &p : r.prefill) {
        rows.push_back(
            {fmt::format("{} tokens", p.tokens), rate_text(p.rate.median), spread_text(p.rate),
             range_text(p.rate),
             rate_text(p.rate.median > 0 ? 1000 * static_cast<double>(p.tokens) / p.rate.median
                                         : 0),
             giga(p.flops), percent_text(p.of_peak), format_bytes(p.held_peak_bytes)});
    }
    return aligned_table(rows);
}

// The bytes of caches and policy data, as text.
std::string held_text(const DecodeResult &d) { return format_bytes(d.kv_bytes + d.policy_bytes); }

std::string decode_table(const BenchReport &r) {
    std::vector<Row> rows{{"decode", "tokens/s", "spread", "range", "ms/token", "GB/s", "of read",
                           "held", "most held", "submits", "waits"}};
    for (const DecodeResult &d : r.decode) {
        if (d.sequences > 1) continue;
        rows.push_back({fmt::format("{} tokens at {}", d.tokens, d.depth), rate_text(d.rate.median),
                        spread_text(d.rate), range_text(d.rate),
                        rate_text(d.rate.median > 0 ? 1000 / d.rate.median : 0),
                        giga(d.bytes_per_second), percent_text(d.of_bandwidth), held_text(d),
                        format_bytes(d.held_peak_bytes), fmt::format("{:.1f}", d.submits),
                        fmt::format("{:.1f}", d.waits)});
    }
    return aligned_table(rows);
}

// The table of the decodes with several sequences.
std::string batch_table(const BenchReport &r) {
    std::vector<Row> rows{{"decode at once", "tokens/s", "spread", "range", "each", "x one",
                           "ms/step", "GB/s", "of read", "held", "most held", "submits", "waits"}};
    for (const DecodeResult &d : r.decode) {
        if (d.sequences == 1) continue;
        const double each = d.rate.median / static_cast<double>(d.sequences);
        rows.push_back(
            {fmt::format("{} sequences, {} tokens at {}", d.sequences, d.tokens, d.depth),
             rate_text(d.rate.median), spread_text(d.rate), range_text(d.rate), rate_text(each),
             d.of_one ? fmt::format("{:.2f}", *d.of_one) : "-",
             rate_text(each > 0 ? 1000 / each : 0), giga(d.bytes_per_second),
             percent_text(d.of_bandwidth), held_text(d), format_bytes(d.held_peak_bytes),
             fmt::format("{:.1f}", d.submits), fmt::format("{:.1f}", d.waits)});
    }
    return aligned_table(rows);
}

bool has_sequences(const BenchReport &r, bool several) {
    return std::any_of(r.decode.begin(), r.decode.end(),
                       [&](const DecodeResult &d) { return (d.sequences > 1) == several; });
}

std::string probe_text(const BenchReport &r) {
    if (r.probe_isa.empty())
        return "without probes, the shares of the machine's limits are not known\n";
    std::string out =
        fmt::format("limits of this machine, measured between the tests ({} loops, {} thread{}):\n",
                    r.probe_isa, r.threads, r.threads == 1 ? "" : "s");
    if (r.read_plain > 0) {
        out += fmt::format("  read {} GB/s ({} plain, {} with prefetch, {} buffer)\n",
                           giga(std::max(r.read_plain, r.read_prefetched)), giga(r.read_plain),
                           giga(r.read_prefetched), format_bytes(r.probe_bytes));
    }
    return out + fmt::format("  f32 multiply-add {} GFLOP/s; kernels named 'fast' and GPUs can be "
                             "faster, so they "
                             "show no share of this peak\n",
                             giga(r.peak_flops));
}

Json spread_json(const Spread &s) {
    return {{"median", s.median},
            {"deviation", s.deviation},
            {"min", s.min},
            {"max", s.max},
            {"samples", s.samples}};
}

Json probe_json(const BenchReport &r) {
    if (r.probe_isa.empty()) return nullptr;
    return {{"isa", r.probe_isa},
            {"buffer_bytes", r.probe_bytes},
            {"read_bytes_per_second", std::max(r.read_plain, r.read_prefetched)},
            {"read_plain_bytes_per_second", r.read_plain},
            {"read_prefetched_bytes_per_second", r.read_prefetched},
            {"f32_flops_per_second", r.peak_flops}};
}

} // namespace

std::string bench_table(const BenchReport &report, std::string_view version) {
    std::string out = heading(report, version);
    if (!report.prefill.empty()) out.append(1, '\n').append(prefill_table(report));
    if (has_sequences(report, false)) out.append(1, '\n').append(decode_table(report));
    if (has_sequences(report, true)) out.append(1, '\n').append(batch_table(report));
    return out.append(ops_tables(report)).append(1, '\n').append(probe_text(report));
}

Json bench_json(const BenchReport &r, std::string_view version) {
    Json prefill = Json::array(), decode = Json::array();
    for (const PrefillResult &p : r.prefill) {
        prefill.push_back({{"tokens", p.tokens},
                           {"tokens_per_second", spread_json(p.rate)},
                           {"flop", p.flop},
                           {"flops_per_second", p.flops},
                           {"of_peak", optional_json(p.of_peak)},
                           {"held_peak_bytes", p.held_peak_bytes}});
    }
    for (const DecodeResult &d : r.decode) {
        decode.push_back({{"depth", d.depth},
                          {"tokens", d.tokens},
                          {"sequences", d.sequences},
                          {"tokens_per_second", spread_json(d.rate)},
                          {"of_one", optional_json(d.of_one)},
                          {"bytes_per_second", d.bytes_per_second},
                          {"kv_bytes_read_per_token", d.kv_read_per_token},
                          {"read_probe_bytes_per_second",
                           d.probe.samples.empty() ? Json(nullptr) : spread_json(d.probe)},
                          {"of_bandwidth", optional_json(d.of_bandwidth)},
                          {"kv_bytes", d.kv_bytes},
                          {"policy_bytes", d.policy_bytes},
                          {"held_bytes", d.kv_bytes + d.policy_bytes},
                          {"held_peak_bytes", d.held_peak_bytes},
                          {"submits_per_token", d.submits / static_cast<double>(d.sequences)},
                          {"waits_per_token", d.waits / static_cast<double>(d.sequences)}});
    }
    return {
        {"version", version},
        {"commit", r.commit.empty() ? Json(nullptr) : Json(r.commit)},
        {"machine", {{"cpu", r.cpu}, {"processors", r.threads}, {"memory_bytes", r.memory_bytes}}},
        {"backend",
         {{"plugin", r.backend},
          {"device", r.device},
          {"description", r.description},
          {"sync", r.sync},
          {"fallback_ops", r.fallbacks}}},
        {"model",
         {{"path", r.model},
          {"architecture", r.architecture},
          {"parameters", r.parameters},
          {"weights", r.weights},
          {"weight_bytes", r.weight_bytes},
          {"weight_bytes_per_token", r.weight_bytes_per_token}}},
        {"kv",
         {{"key_dtype", keel_dtype_name(r.key_dtype)},
          {"value_dtype", keel_dtype_name(r.value_dtype)},
          {"bytes_per_token", r.kv_bytes_per_token},
          {"window_bytes", r.kv_window_bytes},
          {"policy", r.policy}}},
        {"load_seconds", r.load_seconds},
        {"peak_resident_bytes", r.peak_resident_bytes},
        {"repeat", r.repeat},
        {"probe", probe_json(r)},
        {"prefill", std::move(prefill)},
        {"decode", std::move(decode)},
        {"ops", ops_json(r)}};
}

} // namespace keel
