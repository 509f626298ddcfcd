#include "server/service/jobs.hpp"

#include "server/http/sse_writer.hpp"

#include <fmt/format.h>

namespace keel::server {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void cancel_each(Engine &engine, const std::vector<uint64_t> &ids) {
    for (const uint64_t id : ids) engine.cancel(id);
}

// The error of a request that failed after it had been accepted.
ApiError event_error(const api::RequestEvent &event) {
    if (event.kind == api::RequestEvent::Kind::end)
        return {503, "the server has cancelled the request, because it shuts down"};
    const bool lacks_memory = event.error_kind == api::ErrorKind::resource;
    return {lacks_memory ? 503 : 500, event.detail};
}

} // namespace

struct Jobs::Submitted {
    std::shared_ptr<Engine> engine;
    PreparedJob job;
    std::vector<uint64_t> ids;
    std::optional<ApiError> error;
};

// Reads the body and gives its requests to the engine. If one is refused, none runs.
Jobs::Submitted Jobs::submit(const std::function<PreparedJob()> &prepare, Engine &engine,
                             const std::atomic<bool> &is_lost,
                             const std::function<void(api::Request &, size_t)> &connect) {
    Submitted result;
    try {
        result.job = prepare();
        for (size_t i = 0; i < result.job.requests.size() && !is_lost; ++i) {
            api::Request request = std::move(result.job.requests[i]);
            connect(request, i);
            const bool is_long = std::ssize(request.prompt) > engine.context();
            try {
                result.ids.push_back(engine.submit(std::move(request)));
            } catch (const api::Error &e) {
                ApiError error = api_error(e.kind(), e.what());
                if (e.kind() == api::ErrorKind::usage) {
                    error.param = result.job.prompt_key;
                    if (is_long) error.code = "context_length_exceeded";
                }
                if (e.kind() == api::ErrorKind::runtime) error.status = 503; // a device is lost
                throw error;
            }
        }
    } catch (...) {
        result.error = current_api_error();
        cancel_each(engine, result.ids);
        result.ids.clear();
    }
    return result;
}

void Jobs::start(std::shared_ptr<Exchange> exchange, std::shared_ptr<Engine> engine,
                 std::function<PreparedJob()> prepare) {
    const uint64_t number = ++last_number_;
    Job &job = jobs_[number];
    job.is_lost = std::make_shared<std::atomic<bool>>(false);
    job.exchange = std::move(exchange);
    job.engine = engine;
    job.started = job.last_sent = SteadyClock::now();
    job.exchange->on_gone([this, number] { lose(number); });
    const auto connect = [this, number](api::Request &request, size_t i) {
        request.on_prompt = [this, number, i](const std::vector<api::Logprobs> &tokens) {
            to_io_([this, number, i, tokens] { take_prompt(number, i, tokens); });
        };
        request.on_event = [this, number, i](const api::RequestEvent &event) {
            to_io_([this, number, i, event] { take_event(number, i, event); });
        };
        request.on_done = [this, number](const api::RequestUsage &usage) {
            to_io_([this, number, usage] { take_usage(number, usage); });
        };
    };
    to_work_([this, number, engine, is_lost = job.is_lost, prepare = std::move(prepare), connect] {
        auto result = std::make_shared<Submitted>(submit(prepare, *engine, *is_lost, connect));
        result->engine = engine;
        to_io_([this, number, result] { submitted(number, *result); });
    });
}

Jobs::Job *Jobs::find(uint64_t number) {
    const auto found = jobs_.find(number);
    return found == jobs_.end() ? nullptr : &found->second;
}

// The requests of a job run, or were refused.
void Jobs::submitted(uint64_t number, Submitted &result) {
    Job *job = find(number);
    if (job == nullptr || *job->is_lost) {
        cancel_each(*result.engine, result.ids);
        jobs_.erase(number);
        return;
    }
    job->ids = std::move(result.ids);
    job->is_submitted = true;
    if (result.error) return fail(number, *result.error);
    job->writer = std::move(result.job.writer);
    job->open = job->ids.size();
    job->stream = result.job.stream;
    job->include_usage = result.job.include_usage;
    job->usage = result.job.usage;
    job->model = std::move(result.job.model);
    const auto early = std::move(job->early);
    if (job->stream) {
        HttpResponse head;
        head.type = "text/event-stream; charset=utf-8";
        head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
        job->exchange->begin_stream(std::move(head));
    }
    Chunks chunks;
    job->writer->begin(chunks);
    send(*job, chunks); // the job may be lost after this
    for (const auto &event : early) event();
}

void Jobs::take_prompt(uint64_t number, size_t prompt, const std::vector<api::Logprobs> &tokens) {
    Job *job = find(number);
    if (job == nullptr) return;
    if (!job->is_submitted) {
        job->early.emplace_back([=, this] { take_prompt(number, prompt, tokens); });
        return;
    }
    Chunks chunks;
    job->writer->take_prompt(prompt, tokens, chunks);
    send(*job, chunks);
}

void Jobs::take_event(uint64_t number, size_t prompt, const api::RequestEvent &event) {
    Job *job = find(number);
    if (job == nullptr) return;
    if (!job->is_submitted) {
        job->early.emplace_back([=, this] { take_event(number, prompt, event); });
        return;
    }
    const bool is_end = event.kind == api::RequestEvent::Kind::end;
    if (event.kind == api::RequestEvent::Kind::failed ||
        (is_end && event.stop == api::Stop::cancelled))
        return fail(number, event_error(event));
    count_token(*job, prompt, event);
    if (is_end) job->finished.push_back(finish_reason(event.stop));
    Chunks chunks;
    job->writer->take_event(prompt, event, chunks);
    send(*job, chunks);
}

void Jobs::take_usage(uint64_t number, const api::RequestUsage &usage) {
    Job *job = find(number);
    if (job == nullptr) return;
    if (!job->is_submitted) {
        job->early.emplace_back([=, this] { take_usage(number, usage); });
        return;
    }
    job->usage.add(usage);
    if (--job->open == 0) finish(number);
}

void Jobs::count_token(Job &job, size_t prompt, const api::RequestEvent &event) {
    if (event.kind != api::RequestEvent::Kind::text) return;
    const auto now = SteadyClock::now();
    const auto [last, is_first] = job.last_token.emplace(std::pair(prompt, event.choice), now);
    if (is_first) {
        metrics_.first_token.add(seconds_since(job.started));
    } else {
        metrics_.between_tokens.add(std::chrono::duration<double>(now - last->second).count());
        last->second = now;
    }
}

void Jobs::finish(uint64_t number) {
    Job &job = jobs_.at(number);
    metrics_.add(job.usage);
    metrics_.whole_request.add(seconds_since(job.started));
    const api::RequestUsage &total = job.usage.total;
    for (const char *reason : job.finished) ++metrics_.finished[{reason, total.policy}];
    JsonWriter log;
    log.begin_object()
        .member("model", job.model)
        .member("stream", job.stream)
        .member("prompt_tokens", total.prompt_tokens)
        .member("completion_tokens", total.generated_tokens)
        .member("cached_tokens", total.cached_tokens)
        .member("policy", total.policy)
        .member("evicted_tokens", total.evicted_tokens)
        .member("cache_peak_bytes", total.cache_peak_bytes)
        .member("queue_seconds", total.queue_seconds)
        .member("prompt_seconds", total.prompt_seconds)
        .member("generation_seconds", total.generation_seconds)
        .end_object();
    const std::string members = log.take();
    const std::shared_ptr<Exchange> exchange = job.exchange;
    exchange->log_members = members.substr(1, members.size() - 2);
    if (job.stream) {
        std::string text;
        if (job.include_usage) text += sse_event(job.writer->usage_chunk(job.usage));
        text += sse_done;
        jobs_.erase(number);
        exchange->send(text);
        exchange->end_stream(true);
        return;
    }
    HttpResponse response;
    response.body = job.writer->whole(job.usage);
    jobs_.erase(number);
    exchange->answer(std::move(response));
}

void Jobs::fail(uint64_t number, const ApiError &error) {
    Job &job = jobs_.at(number);
    cancel_each(*job.engine, job.ids);
    const std::shared_ptr<Exchange> exchange = job.exchange;
    const bool has_begun = job.stream;
    exchange->log_members = error_log(error);
    jobs_.erase(number);
    if (!has_begun) return exchange->answer(error_response(error));
    exchange->send(sse_event("{\"error\":" + error_object(error) + "}"));
    exchange->end_stream(false);
}

void Jobs::fail_all(const ApiError &error) {
    while (!jobs_.empty()) {
        const auto first = jobs_.begin();
        if (!first->second.is_submitted) *first->second.is_lost = true;
        fail(first->first, error);
    }
}

// The client has gone.
void Jobs::lose(uint64_t number) {
    Job *job = find(number);
    if (job == nullptr) return;
    ++metrics_.lost_clients;
    *job->is_lost = true;
    if (!job->is_submitted) return; // submitted() cancels the requests
    cancel_each(*job->engine, job->ids);
    jobs_.erase(number);
}

// Sends the chunks with one write. If the client reads too slowly, the job is lost after this.
void Jobs::send(Job &job, const Chunks &chunks) {
    if (!job.stream || chunks.empty()) return;
    std::string text;
    for (const std::string &chunk : chunks) text += sse_event(chunk);
    job.last_sent = SteadyClock::now();
    const std::shared_ptr<Exchange> exchange = job.exchange;
    exchange->send(text);
}

void Jobs::ping(double seconds) {
    std::vector<std::shared_ptr<Exchange>> quiet;
    for (auto &entry : jobs_) {
        Job &job = entry.second;
        if (!job.stream || seconds_since(job.last_sent) < seconds) continue;
        job.last_sent = SteadyClock::now();
        quiet.push_back(job.exchange);
    }
    for (const auto &exchange : quiet) exchange->send(sse_ping);
}

} // namespace keel::server
