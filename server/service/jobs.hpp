#pragma once

#include "server/http/exchange.hpp"
#include "server/service/answer_writer.hpp"
#include "server/service/api_error.hpp"
#include "server/service/engine.hpp"
#include "server/service/metrics.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace keel::server {

// What the body of a request asks for, ready to run.
struct PreparedJob {
    std::unique_ptr<AnswerWriter> writer;
    std::vector<api::Request> requests; // one for each prompt, without callbacks
    bool stream = false, include_usage = false;
    UsageSum usage; // with the seed, without counts
    std::string model;
    const char *prompt_key = "prompt"; // for errors about the prompt
};

// Runs a function in another thread: in the I/O thread, or in the work queue.
using Execute = std::function<void(std::function<void()>)>;

// The requests that generate text, from their bodies to the ends of their answers. A client that
// goes is noticed at any time, and its requests are cancelled. The members must be called in the
// I/O thread. The object must outlive the requests of the engines.
class Jobs {
  public:
    // `to_io` and `to_work` run a function in the I/O thread and in the work queue.
    Jobs(Execute to_io, Execute to_work, Metrics &metrics)
        : to_io_(std::move(to_io)), to_work_(std::move(to_work)), metrics_(metrics) {}

    // `prepare` reads the body; it runs in the work queue, and may throw.
    void start(std::shared_ptr<Exchange> exchange, std::shared_ptr<Engine> engine,
               std::function<PreparedJob()> prepare);
    // Ends all answers with this error.
    void fail_all(const ApiError &error);
    // Sends a comment in each stream that has sent nothing for `seconds`.
    void ping(double seconds);
    size_t count() const { return jobs_.size(); }

  private:
    using SteadyClock = std::chrono::steady_clock;
    struct Submitted;
    struct Job {
        std::shared_ptr<Exchange> exchange;
        std::shared_ptr<Engine> engine;
        std::shared_ptr<std::atomic<bool>> is_lost; // the client has gone
        bool is_submitted = false;
        std::vector<std::function<void()>> early; // events that came before submitted()
        std::unique_ptr<AnswerWriter> writer;
        std::vector<uint64_t> ids; // of the engine
        size_t open = 0;           // requests that have not ended
        bool stream = false, include_usage = false;
        UsageSum usage;
        std::string model;
        SteadyClock::time_point started, last_sent;
        std::map<std::pair<size_t, int64_t>, SteadyClock::time_point> last_token; // of each choice
        std::vector<const char *> finished;                                       // finish reasons
    };

    Job *find(uint64_t number);
    void submitted(uint64_t number, Submitted &result);
    void take_prompt(uint64_t number, size_t prompt, const std::vector<api::Logprobs> &tokens);
    void take_event(uint64_t number, size_t prompt, const api::RequestEvent &event);
    void take_usage(uint64_t number, const api::RequestUsage &usage);
    void finish(uint64_t number);
    void fail(uint64_t number, const ApiError &error);
    void lose(uint64_t number);
    void send(Job &job, const Chunks &chunks);
    void count_token(Job &job, size_t prompt, const api::RequestEvent &event);
    static Submitted submit(const std::function<PreparedJob()> &prepare, Engine &engine,
                            const std::atomic<bool> &is_lost,
                            const std::function<void(api::Request &, size_t)> &connect);

    Execute to_io_, to_work_;
    Metrics &metrics_;
    std::map<uint64_t, Job> jobs_;
    uint64_t last_number_ = 0;
};

} // namespace keel::server
