#include "server/service/metrics.hpp"

#include <fmt/format.h>
#include <iterator>

namespace keel::server {
namespace {

std::string escaped(const std::string &label) {
    std::string out;
    for (const char c : label) {
        if (c == '\n') {
            out += "\\n";
            continue;
        }
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    return out;
}

void write_type(std::string &out, const std::string &name, const char *type, const char *help) {
    fmt::format_to(std::back_inserter(out), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

} // namespace

void Histogram::add(double seconds) {
    size_t i = 0;
    while (i < bounds_.size() && seconds > bounds_[i]) ++i;
    ++counts_[i];
    ++count_;
    sum_ += seconds;
}

void Histogram::write(std::string &out, const std::string &name, const std::string &labels) const {
    auto to = std::back_inserter(out);
    uint64_t upto = 0;
    for (size_t i = 0; i < bounds_.size(); ++i) {
        upto += counts_[i];
        fmt::format_to(to, "{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bounds_[i], upto);
    }
    fmt::format_to(to, "{}_bucket{{{},le=\"+Inf\"}} {}\n", name, labels, count_);
    fmt::format_to(to, "{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, sum_, name, labels,
                   count_);
}

void Metrics::add(const UsageSum &usage) {
    queue_time.add(usage.total.queue_seconds);
    prompt_time.add(usage.total.prompt_seconds);
    decode_time.add(usage.total.generation_seconds);
}

std::string metrics_text(const MetricsInput &input) {
    std::string out;
    const std::string model = fmt::format("model_name=\"{}\"", escaped(input.model));
    const api::SchedulerStats &s = input.scheduler;
    const auto one = [&](const std::string &name, const char *type, const char *help, auto value) {
        write_type(out, name, type, help);
        fmt::format_to(std::back_inserter(out), "{}{{{}}} {}\n", name, model, value);
    };
    const double use = s.cache_cap_bytes == 0 ? 0
                                              : static_cast<double>(s.cache_bytes) /
                                                    static_cast<double>(s.cache_cap_bytes);
    const auto gauges = [&](const std::string &prefix) {
        one(prefix + "num_requests_running", "gauge", "Sequences that run.", s.running);
        one(prefix + "num_requests_waiting", "gauge", "Sequences in the queue.", s.waiting);
        one(prefix + "kv_cache_usage_perc", "gauge",
            "Used part of the byte cap of all caches, 0 to 1. 0 if there is no cap.", use);
    };
    gauges("keel_");
    if (input.has_vllm_names) gauges("vllm:");
    one("keel_cache_bytes", "gauge", "Bytes of all caches.", s.cache_bytes);
    one("keel_cache_peak_bytes", "gauge", "Largest number of bytes of all caches so far.",
        s.cache_peak_bytes);
    one("keel_cache_reserved_bytes", "gauge",
        "The most bytes that the caches of the running requests can take.", s.cache_reserved_bytes);
    one("keel_cache_cap_bytes", "gauge", "Byte cap of all caches; 0: no cap.", s.cache_cap_bytes);
    one("keel_connections", "gauge", "Open connections.", input.connections);
    one("keel_requests_total", "counter", "Requests given to the scheduler.", s.requests);
    one("keel_requests_failed_total", "counter", "Requests that failed.", s.failed);
    one("keel_requests_cancelled_total", "counter", "Requests that were cancelled.", s.cancelled);
    one("keel_requests_refused_total", "counter", "Requests that found the queue full.", s.refused);
    one("keel_lost_clients_total", "counter", "Clients that went before their answer was complete.",
        input.metrics.lost_clients);
    one("keel_prompt_tokens_total", "counter", "Prompt tokens that were read.", s.prompt_tokens);
    one("keel_prefix_cache_queries_total", "counter",
        "Prompt tokens that were read or found in a kept cache.",
        s.prompt_tokens + s.cached_tokens);
    one("keel_prefix_cache_hits_total", "counter",
        "Prompt tokens that were found in a kept cache and not read.", s.cached_tokens);
    one("keel_generation_tokens_total", "counter", "Tokens that were generated.",
        s.generated_tokens);
    one("keel_evicted_tokens_total", "counter", "Tokens that were evicted.", s.evicted_tokens);
    one("keel_steps_total", "counter", "Steps of the model.", s.steps);
    one("keel_step_seconds_total", "counter", "Time in steps of the model.", s.step_seconds);
    write_type(out, "keel_request_success_total", "counter", "Finished choices.");
    for (const auto &entry : input.metrics.finished)
        fmt::format_to(std::back_inserter(out),
                       "keel_request_success_total{{{},finished_reason=\"{}\",policy=\"{}\"}} {}\n",
                       model, entry.first.first, escaped(entry.first.second), entry.second);
    write_type(out, "keel_http_requests_total", "counter", "Answers, by endpoint and status.");
    for (const auto &entry : input.metrics.answers)
        fmt::format_to(std::back_inserter(out),
                       "keel_http_requests_total{{endpoint=\"{}\",status=\"{}\"}} {}\n",
                       escaped(entry.first.first), entry.first.second, entry.second);
    const auto histogram = [&](const char *name, const char *help, const Histogram &h) {
        write_type(out, name, "histogram", help);
        h.write(out, name, model);
    };
    const Metrics &m = input.metrics;
    histogram("keel_time_to_first_token_seconds", "From the request to its first token.",
              m.first_token);
    histogram("keel_inter_token_latency_seconds", "Between two tokens of a choice.",
              m.between_tokens);
    histogram("keel_e2e_request_latency_seconds", "From the request to the end of the answer.",
              m.whole_request);
    histogram("keel_request_queue_time_seconds", "In the queue.", m.queue_time);
    histogram("keel_request_prefill_time_seconds", "Reading the prompt.", m.prompt_time);
    histogram("keel_request_decode_time_seconds", "Generating.", m.decode_time);
    return out;
}

} // namespace keel::server
