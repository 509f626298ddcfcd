#pragma once

#include "server/service/usage.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace keel::server {

// Counts values in ranges, as Prometheus' histograms do.
class Histogram {
  public:
    void add(double seconds);
    void write(std::string &out, const std::string &name, const std::string &labels) const;

  private:
    static constexpr std::array<double, 16> bounds_{
        0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
    std::array<uint64_t, bounds_.size() + 1> counts_{};
    uint64_t count_ = 0;
    double sum_ = 0;
};

// The numbers of /metrics that the server counts itself. Used only in the I/O thread.
struct Metrics {
    Histogram first_token, between_tokens, whole_request, queue_time, prompt_time, decode_time;
    std::map<std::pair<std::string, std::string>, uint64_t> finished; // by finish reason and policy
    std::map<std::pair<std::string, int>, uint64_t> answers;          // by endpoint and status
    uint64_t lost_clients = 0;

    void add(const UsageSum &usage);
};

struct MetricsInput {
    const Metrics &metrics;
    api::SchedulerStats scheduler;
    std::string model;
    size_t connections = 0;
    bool has_vllm_names = false; // also writes the gauges with vLLM's names
};
// Prometheus' text format.
std::string metrics_text(const MetricsInput &input);

} // namespace keel::server
