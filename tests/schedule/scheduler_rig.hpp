// Code that the tests of the scheduler share.
#pragma once

#include "schedule/scheduler.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace keel::test {

inline pipeline::PipelineConfig rig_config(const std::vector<std::string> &more = {}) {
    std::vector<std::string> sets{std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                                  "backend.plugin=cpu",
                                  "backend.params.threads=1",
                                  "model.context=1024",
                                  "model.weights=q8_0",
                                  "kv.dtype=f32",
                                  "sampling.temperature=0"};
    sets.insert(sets.end(), more.begin(), more.end());
    return pipeline::config_from_overrides(sets);
}

inline std::unique_ptr<Scheduler> open_scheduler(const SchedulerLimits &limits = {},
                                                 const std::vector<std::string> &more = {},
                                                 PipelineOptions changed = {}) {
    PipelineOptions options = scheduler_pipeline_options(limits);
    options.device = changed.device;
    return std::make_unique<Scheduler>(std::make_unique<Pipeline>(rig_config(more), options),
                                       limits);
}

// Tokens `first` to `first + n` - 1 of a book.
inline std::vector<int32_t> book(const Tokenizer &tokenizer, size_t first, size_t n) {
    std::ifstream in(std::string(KEEL_SOURCE_DIR) + "/models/tiny/heldout.txt");
    std::stringstream text;
    text << in.rdbuf();
    const std::vector<int32_t> all = tokenizer.encode(text.str().substr(0, 16000));
    REQUIRE(all.size() >= first + n);
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(first);
    return {at, at + static_cast<std::ptrdiff_t>(n)};
}

// The events of one request. The scheduler's thread writes it.
class Answer {
  public:
    struct Choice {
        std::string text;
        std::vector<int32_t> ids;
        std::vector<TokenLogprobs> logprobs;
        int ends = 0; // events `end` and `failed`
        bool has_failed = false;
        StopReason reason = StopReason::max_tokens;
        ErrorKind error_kind = ErrorKind::internal;
        std::string detail;
        bool came_after_end = false; // an event after the last one
    };

    void listen(TextOrder &order) {
        order.on_event = [this](TextEvent event) { take(std::move(event)); };
        order.on_prompt = [this](std::vector<TokenLogprobs> scores) {
            const std::lock_guard lock(mutex_);
            prompt = std::move(scores);
            has_prompt = choices.empty();
        };
        order.on_done = [this](RequestUsage of_request) {
            const std::lock_guard lock(mutex_);
            usage = std::move(of_request);
            ++done;
            wake_.notify_all();
        };
    }
    // Waits for the end of the request.
    void wait() {
        std::unique_lock lock(mutex_);
        REQUIRE(wake_.wait_for(lock, std::chrono::seconds(120), [&] { return done > 0; }));
    }
    // Waits for n tokens of the first choice, or the end.
    void wait_for_tokens(size_t n) {
        std::unique_lock lock(mutex_);
        REQUIRE(wake_.wait_for(lock, std::chrono::seconds(120),
                               [&] { return done > 0 || choices[0].ids.size() >= n; }));
    }
    Choice &only() {
        REQUIRE(choices.size() == 1);
        return choices[0];
    }

    std::map<int64_t, Choice> choices;
    std::vector<TokenLogprobs> prompt;
    bool has_prompt = false; // the prompt's probabilities came before the first event
    RequestUsage usage;
    int done = 0;

  private:
    void take(TextEvent event) {
        const std::lock_guard lock(mutex_);
        Choice &choice = choices[event.choice];
        if (choice.ends > 0) choice.came_after_end = true;
        choice.text += event.piece.text;
        for (const int32_t id : event.piece.ids) choice.ids.push_back(id);
        for (auto &token : event.piece.logprobs) choice.logprobs.push_back(std::move(token));
        if (event.kind != TextEvent::Kind::text) {
            ++choice.ends;
            choice.has_failed = event.kind == TextEvent::Kind::failed;
            choice.reason = event.reason;
            choice.error_kind = event.error_kind;
            choice.detail = event.detail;
        }
        wake_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable wake_;
};

inline TextOrder order_of(std::vector<int32_t> prompt, int64_t tokens, PolicyChoice policy = {}) {
    TextOrder order;
    order.prompt = std::move(prompt);
    order.options.max_tokens = tokens;
    order.options.ignore_end = true;
    order.options.sampling.temperature = 0;
    if (!policy.empty()) order.policy = std::move(policy);
    return order;
}

inline uint64_t submit(Scheduler &scheduler, TextOrder order, Answer &answer) {
    answer.listen(order);
    return scheduler.submit(std::move(order));
}

// The text that a session alone writes, with the settings of the order.
inline GenerateResult alone(const TextOrder &order, uint32_t prefill_chunk = 0) {
    std::vector<std::string> sets;
    for (const auto &[key, value] : order.policy.value_or(PolicyChoice{}))
        sets.push_back("policy." + (key == "name" ? "plugin" : key) + "=" + value);
    PipelineOptions options;
    options.prefill_chunk = prefill_chunk;
    Pipeline pipeline(rig_config(sets), options);
    Session session(pipeline);
    for (const auto &[from, to] : order.protect) session.pin(from, to, "protect");
    GenerateOptions own = order.options;
    own.on_piece = nullptr;
    return generate(session, order.prompt, own);
}

} // namespace keel::test
