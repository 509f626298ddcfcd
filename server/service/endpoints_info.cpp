// /v1/models, /health, /ready, /metrics, /v1/policies and /v1/status
#include "server/service/service.hpp"

#include "base/json_writer.hpp"

#include <chrono>

namespace keel::server {
namespace {

int64_t unix_seconds(std::chrono::system_clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

} // namespace

void Service::models(const std::shared_ptr<Exchange> &exchange) {
    const SharedModel now = model();
    JsonWriter out;
    out.begin_object().member("object", "list").key("data").begin_array();
    const auto add = [&](const std::string &name, const KeelFields *policy) {
        out.begin_object()
            .member("id", name)
            .member("object", "model")
            .member("created", unix_seconds(started_))
            .member("owned_by", "keel")
            .member("max_model_len", now->engine->context());
        if (policy != nullptr) {
            out.member("root", options_.model_name).key("keel").begin_object();
            for (const auto &key : policy->policy) out.member(key.first, key.second);
            out.end_object();
        }
        out.end_object();
    };
    add(options_.model_name, nullptr);
    for (const auto &alias : options_.aliases) add(alias.first, &alias.second);
    out.end_array().end_object();
    exchange->answer(json_response(out.take()));
}

void Service::health(const std::shared_ptr<Exchange> &exchange) {
    exchange->answer(json_response(R"({"status":"ok"})"));
}

void Service::ready(const std::shared_ptr<Exchange> &exchange) {
    if (is_draining_) throw ApiError(503, "the server shuts down");
    const SharedModel now = model(); // throws while the model is loaded
    exchange->answer(json_response(R"({"status":"ready"})"));
}

void Service::metrics(const std::shared_ptr<Exchange> &exchange) {
    HttpResponse response;
    response.type = "text/plain; version=0.0.4; charset=utf-8";
    response.body =
        metrics_text({metrics_, model_ ? model_->engine->stats() : api::SchedulerStats(),
                      options_.model_name, server_->connections(), options_.has_vllm_metrics});
    exchange->answer(std::move(response));
}

void Service::policies(const std::shared_ptr<Exchange> &exchange) {
    // plugins are files, so they are read in the work queue
    reply_later(exchange, [model = model()] {
        JsonWriter out;
        const auto write_keys = [&](const std::vector<api::PolicyKey> &keys) {
            out.begin_array();
            for (const api::PolicyKey &key : keys)
                out.begin_object()
                    .member("name", key.name)
                    .member("default", key.default_value)
                    .member("expected", key.expected)
                    .member("text", key.text)
                    .end_object();
            out.end_array();
        };
        out.begin_object().member("object", "list").key("data").begin_array();
        for (const api::PolicyInfo &policy : model->engine->policies()) {
            out.begin_object().member("id", policy.name).member("summary", policy.summary);
            out.key("params");
            write_keys(policy.params);
            out.end_object();
        }
        out.end_array().key("keys");
        write_keys(model->engine->policy_keys());
        out.end_object();
        return json_response(out.take());
    });
}

void Service::status(const std::shared_ptr<Exchange> &exchange) {
    JsonWriter out;
    const auto now = std::chrono::system_clock::now();
    out.begin_object()
        .member("status", is_draining_ ? "draining"
                          : model_     ? "ready"
                                       : "loading")
        .member("version", options_.version)
        .member("model", options_.model_name)
        .member("uptime_seconds", unix_seconds(now) - unix_seconds(started_))
        .member("connections", server_->connections())
        .member("answers_in_progress", jobs_->count());
    if (model_) {
        const Engine &engine = *model_->engine;
        const api::SchedulerStats s = engine.stats();
        out.member("context", engine.context())
            .member("most_sequences", engine.most_sequences())
            .key("scheduler")
            .begin_object()
            .member("running", s.running)
            .member("waiting", s.waiting)
            .member("requests", s.requests)
            .member("finished", s.finished)
            .member("failed", s.failed)
            .member("cancelled", s.cancelled)
            .member("refused", s.refused)
            .member("prompt_tokens", s.prompt_tokens)
            .member("cached_tokens", s.cached_tokens)
            .member("generated_tokens", s.generated_tokens)
            .member("evicted_tokens", s.evicted_tokens)
            .member("cache_bytes", s.cache_bytes)
            .member("cache_peak_bytes", s.cache_peak_bytes)
            .member("cache_reserved_bytes", s.cache_reserved_bytes)
            .member("cache_cap_bytes", s.cache_cap_bytes)
            .member("steps", s.steps)
            .member("step_seconds", s.step_seconds)
            .end_object();
    }
    out.end_object();
    exchange->answer(json_response(out.take()));
}

} // namespace keel::server
