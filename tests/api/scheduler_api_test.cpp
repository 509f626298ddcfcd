// The scheduler of the public API.

#include <algorithm>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <keel/scheduler.hpp>
#include <mutex>
#include <stdexcept>

using namespace keel::api;

namespace {

const std::string tiny_model = std::string(KEEL_SOURCE_DIR) + "/models/tiny";

// Collects the events of a request with one choice.
struct Listener {
    std::string text;
    std::vector<int32_t> ids;
    std::vector<Logprobs> logprobs, prompt;
    RequestEvent last;
    RequestUsage usage;

    void join(Request &request) {
        request.on_prompt = [this](std::vector<Logprobs> all) { prompt = std::move(all); };
        request.on_event = [this](const RequestEvent &event) {
            text += event.text;
            ids.insert(ids.end(), event.ids.begin(), event.ids.end());
            logprobs.insert(logprobs.end(), event.logprobs.begin(), event.logprobs.end());
            if (event.kind != RequestEvent::Kind::text) last = event;
        };
        request.on_done = [this](RequestUsage all) {
            const std::lock_guard lock(mutex_);
            usage = std::move(all);
            is_done_ = true;
            done_.notify_all();
        };
    }
    void wait() {
        std::unique_lock lock(mutex_);
        REQUIRE(done_.wait_for(lock, std::chrono::seconds(60), [&] { return is_done_; }));
    }

  private:
    std::mutex mutex_;
    std::condition_variable done_;
    bool is_done_ = false;
};

Request request_of(const Scheduler &scheduler, const std::string &prompt, int64_t tokens) {
    Request request;
    request.prompt = scheduler.encode(prompt);
    request.generation = scheduler.defaults();
    request.generation.max_tokens = tokens;
    request.generation.ignore_end = true;
    return request;
}

template <typename Action> std::pair<ErrorKind, std::string> error_of(Action &&action) {
    try {
        action();
    } catch (const Error &error) {
        return {error.kind(), error.what()};
    }
    FAIL("expected an error");
    return {};
}

} // namespace

TEST_CASE("a request gets the text that a session writes, with probabilities and numbers") {
    const std::vector<std::string> sets{"sampling.seed=5", "backend.params.threads=1"};
    Pipeline pipeline(tiny_model, sets);
    Session session(pipeline);
    Generation options = pipeline.defaults();
    options.max_tokens = 25;
    options.ignore_end = true;
    const Result expected = session.generate("Once upon a time there was", options);

    Scheduler scheduler(tiny_model, sets);
    CHECK(scheduler.context() == pipeline.context());
    CHECK(scheduler.vocab_size() == pipeline.vocab_size());
    Request request = request_of(scheduler, "Once upon a time there was", 25);
    request.generation.logprobs = 1;
    request.prompt_logprobs = 2;
    const std::vector<int32_t> prompt = request.prompt;
    CHECK(prompt == pipeline.encode("Once upon a time there was"));
    Listener listener;
    listener.join(request);
    CHECK(scheduler.submit(std::move(request)) == 1);
    listener.wait();
    CHECK(listener.text == expected.text);
    CHECK(listener.ids == expected.ids);
    CHECK(scheduler.decode(listener.ids) == expected.text);
    CHECK(listener.last.kind == RequestEvent::Kind::end);
    CHECK(listener.last.stop == Stop::max_tokens);
    CHECK(listener.logprobs.size() == 25);
    REQUIRE(listener.prompt.size() == prompt.size() - 1);
    for (size_t i = 0; i < listener.prompt.size(); ++i) {
        CHECK(listener.prompt[i].chosen.id == prompt[i + 1]);
        CHECK(listener.prompt[i].chosen.logprob <= 0);
        CHECK(listener.prompt[i].top.size() == 2);
    }
    CHECK(listener.usage.prompt_tokens == prompt.size());
    CHECK(listener.usage.generated_tokens == 25);
    CHECK(listener.usage.kept_tokens == prompt.size() + 24);
    CHECK(listener.usage.policy == "none");
    CHECK(scheduler.drain(10));
    const SchedulerStats stats = scheduler.stats();
    CHECK(stats.requests == 1);
    CHECK(stats.finished == 1);
    CHECK(stats.generated_tokens == 25);
    CHECK(stats.cache_peak_bytes > 0);
    CHECK(stats.cache_bytes > 0); // the cache is kept for later requests
    CHECK(stats.cache_bytes <= stats.cache_peak_bytes);
}

TEST_CASE("each request may choose a policy, and errors name its key") {
    Scheduler scheduler(tiny_model, {"backend.params.threads=1"});
    std::string long_prompt;
    for (int i = 0; i < 40; ++i) long_prompt += "The king had a daughter. ";
    Request request = request_of(scheduler, long_prompt, 8);
    request.policy = PolicyChoice{{"name", "snapkv"}, {"budget.tokens", "64"}};
    request.protect = {{10, 20}};
    Listener listener;
    listener.join(request);
    scheduler.submit(request);
    listener.wait();
    CHECK(listener.last.kind == RequestEvent::Kind::end);
    CHECK(listener.ids.size() == 8);
    CHECK(listener.usage.policy == "snapkv");
    CHECK(listener.usage.evictions > 0);
    CHECK(listener.usage.kept_tokens < 90);
    CHECK(listener.usage.policy_seconds > 0);

    const auto wrong = [&](const PolicyChoice &policy) {
        request.policy = policy;
        return error_of([&] { scheduler.submit(request); });
    };
    CHECK(wrong({{"name", "nothing"}}).first == ErrorKind::plugin);
    const auto [kind, text] = wrong({{"name", "snapkv"}, {"budget.tokens", "-1"}});
    CHECK(kind == ErrorKind::input);
    CHECK_THAT(text, Catch::Contains("policy.budget.tokens"));
    const std::vector<PolicyInfo> policies = scheduler.policies();
    CHECK(std::any_of(policies.begin(), policies.end(), [](const PolicyInfo &policy) {
        return policy.name == "snapkv" && !policy.params.empty() && !policy.summary.empty();
    }));
    const std::vector<PolicyKey> keys = scheduler.policy_keys();
    CHECK(std::any_of(keys.begin(), keys.end(), [](const PolicyKey &key) {
        return key.name == "budget.tokens" && !key.expected.empty() && !key.text.empty();
    }));
}

TEST_CASE("wrong options of a scheduler and of a request are refused") {
    SchedulerOptions options;
    options.seats = 0;
    CHECK(error_of([&] { Scheduler(tiny_model, {}, options); }).first == ErrorKind::usage);
    options = {};
    options.queue = -1;
    CHECK(error_of([&] { Scheduler(tiny_model, {}, options); }).first == ErrorKind::usage);
    options = {};
    options.prompt_tokens_per_step = -1;
    CHECK(error_of([&] { Scheduler(tiny_model, {}, options); }).first == ErrorKind::usage);

    options = {};
    options.cache_bytes = 1 << 20;
    options.prompt_tokens_per_step = 32;
    Scheduler scheduler(tiny_model, {"backend.params.threads=1"}, options);
    CHECK(scheduler.stats().cache_cap_bytes == 1 << 20);
    const Request good = request_of(scheduler, "The wolf", 4);
    const auto refusal = [&](const std::function<void(Request &)> &change) {
        Request request = good;
        change(request);
        return error_of([&] { scheduler.submit(request); });
    };
    CHECK(refusal([](Request &r) { r.prompt.clear(); }).first == ErrorKind::usage);
    CHECK(refusal([](Request &r) { r.prompt = {-1}; }).first == ErrorKind::usage);
    CHECK(refusal([](Request &r) { r.generation.temperature = -1; }).first == ErrorKind::usage);
    CHECK(refusal([](Request &r) { r.generation.max_tokens = -1; }).first == ErrorKind::usage);
    CHECK(refusal([](Request &r) { r.generation.on_text = [](std::string_view) {}; }).first ==
          ErrorKind::usage);
    const auto [kind, text] = refusal([](Request &r) { r.generation.max_tokens = 1500; });
    CHECK(kind == ErrorKind::usage);
    CHECK_THAT(text, Catch::Contains("cache_bytes"));
    CHECK(scheduler.drain(1));
    CHECK(error_of([&] { scheduler.submit(good); }).first == ErrorKind::resource);
}

TEST_CASE("an exception of a request's callback cancels the request") {
    Scheduler scheduler(tiny_model, {"backend.params.threads=1"});
    Request request = request_of(scheduler, "The wolf", 500);
    Listener listener;
    listener.join(request);
    int events = 0;
    request.on_event = [&](const RequestEvent &) {
        ++events;
        throw std::runtime_error("gone");
    };
    scheduler.submit(request);
    listener.wait();
    CHECK(events == 1);
    CHECK(listener.usage.generated_tokens < 10);
    CHECK(scheduler.drain(5));
    CHECK(scheduler.stats().cancelled == 1);
}
