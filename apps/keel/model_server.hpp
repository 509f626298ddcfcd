#pragma once

#include "server/http/limits.hpp"
#include "server/service/service.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace keel::cli {

struct ServerSettings {
    std::string target; // as for api::Pipeline
    std::vector<std::string> overrides;
    std::filesystem::path model_path;
    std::string model_name;    // empty: from the target
    std::string chat_template; // empty: from the model's files
    api::SchedulerOptions scheduler;
    server::HttpLimits limits;
    std::string host = "127.0.0.1", unix_path, keys_file, presets_file;
    int64_t port = 8080;
    std::vector<std::string> origins;
    double drain_seconds = 30;
    bool has_vllm_metrics = false, logs_requests = true;
};

// Listens, loads the model, and serves until SIGTERM or SIGINT. Returns the exit code.
int run_server(const ServerSettings &settings);

} // namespace keel::cli
