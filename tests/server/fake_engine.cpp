#include "server/fake_engine.hpp"

#include <algorithm>
#include <chrono>

namespace keel::server::test {
namespace {

api::Logprobs logprobs_of(int32_t id, int64_t top) {
    api::Logprobs out;
    out.chosen = {id, -0.25};
    if (top > 0) out.top.push_back({id, -0.25});
    if (top > 1) out.top.push_back({id + 1, -1.5});
    return out;
}

} // namespace

FakeEngine::FakeEngine(std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)), thread_([this] { run(); }) {}

FakeEngine::~FakeEngine() { FakeEngine::stop(); }

void FakeEngine::stop() {
    {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

uint64_t FakeEngine::submit(api::Request request) {
    const std::lock_guard lock(mutex_);
    if (is_full_) {
        ++stats_.refused;
        throw api::Error(api::ErrorKind::resource, "the queue is full");
    }
    if (std::ssize(request.prompt) > context())
        throw api::Error(api::ErrorKind::usage, "the prompt is longer than the context");
    Running running;
    running.id = ++last_id_;
    for (int64_t i = 0; i < request.choices; ++i)
        running.choices.push_back(
            {std::make_unique<TextStream>(*tokenizer_, request.generation.stop), 0, false});
    last_ = request;
    last_.on_event = nullptr;
    last_.on_prompt = nullptr;
    last_.on_done = nullptr;
    running.request = std::move(request);
    running_.push_back(std::move(running));
    ++stats_.requests;
    changed_.notify_all();
    return last_id_;
}

void FakeEngine::cancel(uint64_t id) noexcept {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) ++*late_cancels_;
    cancelled_.insert(id);
    changed_.notify_all();
}

api::SchedulerStats FakeEngine::stats() const {
    const std::lock_guard lock(mutex_);
    api::SchedulerStats stats = stats_;
    stats.running = static_cast<int64_t>(running_.size());
    return stats;
}

std::vector<api::PolicyInfo> FakeEngine::policies() const {
    return {{"snapkv", "keeps what the last tokens look at", {{"params.window", "32", "", ""}}}};
}

api::Generation FakeEngine::defaults() const {
    api::Generation g;
    g.temperature = 0;
    return g;
}

void FakeEngine::hold(bool is_held) {
    const std::lock_guard lock(mutex_);
    is_held_ = is_held;
    changed_.notify_all();
}

void FakeEngine::refuse(bool is_full) {
    const std::lock_guard lock(mutex_);
    is_full_ = is_full;
}

void FakeEngine::fail_next(const std::string &message) {
    const std::lock_guard lock(mutex_);
    failure_ = message;
}

bool FakeEngine::wait_for(size_t requests) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10),
                             [&] { return running_.size() == requests; });
}

api::Request FakeEngine::last_request() const {
    const std::lock_guard lock(mutex_);
    return last_;
}

void FakeEngine::run() {
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
        for (auto at = running_.begin(); at != running_.end();) {
            if (cancelled_.contains(at->id)) {
                ++stats_.cancelled;
                for (size_t i = 0; i < at->choices.size(); ++i)
                    if (!at->choices[i].is_done)
                        end(*at, at->choices[i], static_cast<int64_t>(i), {}, api::Stop::cancelled);
            } else if (!is_held_) {
                step(*at);
            }
            const bool is_done = std::all_of(at->choices.begin(), at->choices.end(),
                                             [](const Choice &c) { return c.is_done; });
            at = is_done ? running_.erase(at) : std::next(at);
        }
        changed_.notify_all();
        if (running_.empty() || is_held_) {
            changed_.wait_for(lock, std::chrono::milliseconds(5));
        } else {
            lock.unlock();
            std::this_thread::sleep_for(std::chrono::microseconds(200));
            lock.lock();
        }
    }
}

// One token of each choice.
void FakeEngine::step(Running &running) {
    const api::Request &request = running.request;
    const std::vector<int32_t> &prompt = request.prompt;
    if (!running.has_begun && request.prompt_logprobs && prompt.size() > 1) {
        std::vector<api::Logprobs> tokens;
        for (size_t i = 1; i < prompt.size(); ++i)
            tokens.push_back(logprobs_of(prompt[i], *request.prompt_logprobs));
        request.on_prompt(std::move(tokens));
    }
    running.has_begun = true;
    for (size_t i = 0; i < running.choices.size(); ++i) {
        Choice &choice = running.choices[i];
        if (choice.is_done) continue;
        api::RequestEvent event;
        event.choice = static_cast<int64_t>(i);
        if (!failure_.empty()) {
            event.kind = api::RequestEvent::Kind::failed;
            event.detail = std::exchange(failure_, "");
            choice.is_done = true;
            request.on_event(event);
            continue;
        }
        if (request.generation.max_tokens == 0) {
            end(running, choice, event.choice, event, api::Stop::max_tokens);
            continue;
        }
        const int32_t id = prompt[static_cast<size_t>(choice.tokens) % prompt.size()];
        ++choice.tokens;
        event.ids = {id};
        if (request.generation.logprobs)
            event.logprobs = {logprobs_of(id, *request.generation.logprobs)};
        const bool is_end = std::count(request.end_ids.begin(), request.end_ids.end(), id) > 0;
        if (!is_end) event.text = choice.stream->push(id);
        if (choice.stream->stopped()) {
            event.detail = std::string(choice.stream->stop_string());
            end(running, choice, event.choice, event, api::Stop::stop_string);
        } else if (is_end) {
            end(running, choice, event.choice, event, api::Stop::end_token);
        } else if (choice.tokens == request.generation.max_tokens) {
            event.text += choice.stream->finish();
            end(running, choice, event.choice, event, api::Stop::max_tokens);
        } else {
            request.on_event(event);
        }
    }
}

void FakeEngine::end(Running &running, Choice &choice, int64_t index, api::RequestEvent event,
                     api::Stop stop) {
    choice.is_done = true;
    event.choice = index;
    event.kind = api::RequestEvent::Kind::end;
    event.stop = stop;
    running.request.on_event(event);
    for (const Choice &other : running.choices)
        if (!other.is_done) return;
    api::RequestUsage usage;
    usage.prompt_tokens = running.request.prompt.size();
    for (const Choice &other : running.choices)
        usage.generated_tokens += static_cast<uint64_t>(other.tokens);
    usage.policy = running.request.policy ? "snapkv" : "none";
    if (stop != api::Stop::cancelled) ++stats_.finished;
    running.request.on_done(usage);
}

} // namespace keel::server::test
