#pragma once

#include "server/service/engine.hpp"
#include "text/text_stream.hpp"
#include "text/tokenizer/tokenizer.hpp"

#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

namespace keel::server::test {

// An engine without a model: the text of a request is its prompt, again and again. Token i of a
// text has the log probability -0.25. The next most likely token is the id plus one, with -1.5.
class FakeEngine final : public Engine {
  public:
    explicit FakeEngine(std::shared_ptr<const Tokenizer> tokenizer);
    ~FakeEngine() override;

    uint64_t submit(api::Request request) override;
    void cancel(uint64_t id) noexcept override;
    void stop() override;
    api::SchedulerStats stats() const override;
    std::vector<api::PolicyInfo> policies() const override;
    std::vector<api::PolicyKey> policy_keys() const override { return {}; }
    int64_t context() const override { return 256; }
    int64_t vocab_size() const override { return tokenizer_->vocab_size(); }
    api::Generation defaults() const override;
    int64_t most_sequences() const override { return 16; }

    // While the engine is held, requests wait and generate nothing.
    void hold(bool is_held);
    // Refuses requests as a full queue does.
    void refuse(bool is_full);
    // The next token of any request fails with this message.
    void fail_next(const std::string &message);
    // Waits until this number of requests run or wait. Returns false after ten seconds.
    bool wait_for(size_t requests);
    api::Request last_request() const; // without callbacks
    // Calls of cancel() after stop(). The counter outlives the engine.
    std::shared_ptr<const std::atomic<int>> late_cancels() const { return late_cancels_; }

  private:
    struct Choice {
        std::unique_ptr<TextStream> stream;
        int64_t tokens = 0;
        bool is_done = false;
    };
    struct Running {
        uint64_t id = 0;
        api::Request request;
        std::vector<Choice> choices;
        bool has_begun = false;
    };

    void run();
    void step(Running &running);
    void end(Running &running, Choice &choice, int64_t index, api::RequestEvent event,
             api::Stop stop);

    std::shared_ptr<const Tokenizer> tokenizer_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::list<Running> running_;
    std::set<uint64_t> cancelled_;
    std::string failure_;
    api::Request last_;
    api::SchedulerStats stats_;
    bool is_held_ = false, is_full_ = false, is_stopping_ = false;
    uint64_t last_id_ = 0;
    std::shared_ptr<std::atomic<int>> late_cancels_ = std::make_shared<std::atomic<int>>(0);
    std::thread thread_;
};

} // namespace keel::server::test
