// Many requests on one loaded model. A server is made from this class.
//
// HOW IT WORKS. A Scheduler loads a pipeline and runs it in a thread of its own. Any thread may
// submit requests. The scheduler runs all running requests together: each step of the model takes
// one token of each request that generates, and chunks of the prompts that are not read yet. A
// request joins and leaves between two steps. Each request has its own cache, and may choose its
// own policy. If all seats are taken, or if the byte cap leaves no room, requests wait in a queue.
//
// SAME TEXT UNDER ANY LOAD. Prompts are cut into chunks at positions that depend only on the
// request. Other requests never change which tokens a policy keeps.
//
// ERRORS. Functions throw keel::api::Error. A request that fails ends with an event; other requests
// go on.
//
// THREADS. Any thread may call any function at any time, except the constructor and the destructor.
// submit() waits for the end of the current step if no earlier request had the same policy
// settings. Callbacks run in the scheduler's thread. A callback must return soon, must not block,
// and must not call submit() or drain() of the same scheduler; it may call cancel() and stats().
//
// All members of this header exist since version 0.1.
#ifndef KEEL_SCHEDULER_HPP
#define KEEL_SCHEDULER_HPP

#include "keel/keel.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel::api {

// Limits of a scheduler.
struct SchedulerOptions {
    // Largest number of sequences that run at once, 1 to 256.
    int64_t seats = 8;
    // Largest number of sequences that wait. 0: a request that cannot start at once is refused.
    int64_t queue = 64;
    // Largest number of bytes of all caches together: keys, values, and the memory of policies. A
    // request begins if the largest number of bytes that it can take is free. These bytes are
    // reserved until it ends, so a request that has begun never waits for memory. 0: no cap; then
    // the machine's memory must hold a full cache for each seat.
    uint64_t cache_bytes = 0;
    // Largest number of prompt tokens that one step reads. It bounds the time between two tokens of
    // a request while another prompt is read. Prompts are read in chunks of this size. A policy
    // that acts between chunks keeps other tokens if the chunks have another size. 0: the backend's
    // chunk size, with which `keel run` reads prompts; it is also the upper limit. There is one
    // exception: a policy that lets the model repeat its context (kvzip) does so in one step.
    int64_t prompt_tokens_per_step = 0;
    // Largest number of caches of earlier requests that are kept, 0 to 256. A request whose prompt
    // begins with the tokens of a kept cache does not read these tokens again. This holds for
    // policies that keep all tokens, and for policies that act only at the end of a prompt and need
    // no sums over its attention (of Keel's own policies: snapkv, kvzip and tova). It does not hold
    // for requests with prompt_logprobs. Kept caches take only bytes that no running request has
    // reserved. The cache that was not used for the longest time goes first.
    int64_t kept = 4;
};

// How a request's cache forgets. Keys are those of the pipeline file's section `policy`, without
// the section's name: {"name", "snapkv"}, {"budget.tokens", "512"}, {"params.window", "32"},
// {"allocator.name", "adaptive"}. `name` is the file's key `plugin`. A key that is not set has the
// value of the pipeline's file, if the policy's name is the same as in the file; otherwise the
// key's default. The keys `log` and `log_positions`, paths of plugins, and parameters that are
// paths are refused, so that a request cannot make the server read or write files.
using PolicyChoice = std::vector<std::pair<std::string, std::string>>;

// One choice's part of the result, delivered while it is generated.
struct RequestEvent {
    enum class Kind {
        text,   // a token was generated; `text` may be empty, because characters can need several
                // tokens and because text that may be the start of a stop string is held back
        end,    // the choice has ended: `stop` and `detail` are set
        failed, // the choice has failed: `error_kind` and `detail` are set
    };
    Kind kind = Kind::text;
    int64_t choice = 0; // 0 to Request::choices - 1
    // Text that continues the text of earlier events. It consists of whole characters. In `end`,
    // the text that was held back.
    std::string text;
    // Tokens whose text is complete with this event, in order; with their probabilities if
    // Generation::logprobs is set. All tokens that were generated occur in one event. `end` has
    // the end token, and the tokens of a stop string.
    std::vector<int32_t> ids;
    std::vector<Logprobs> logprobs;
    Stop stop = Stop::max_tokens;
    ErrorKind error_kind = ErrorKind::runtime;
    // `end`: the stop string that ended the text, or the reason. `failed`: the error's message.
    std::string detail;
};

// The numbers of one request, complete when the last choice has ended.
struct RequestUsage {
    uint64_t prompt_tokens = 0;    // counted once, also if there are several choices
    uint64_t generated_tokens = 0; // of all choices
    // Prompt tokens that were not read, because an earlier request's cache has them.
    uint64_t cached_tokens = 0;
    // The first choice at its end: tokens in the cache (of the layer and head that holds the most),
    // and tokens that evictions removed (from the layer and head that lost the most).
    uint64_t kept_tokens = 0, evicted_tokens = 0;
    uint64_t evictions = 0;        // how often tokens of the first choice were evicted
    uint64_t cache_peak_bytes = 0; // of the first choice: keys, values, and the policy's memory
    double queue_seconds = 0;      // from submit() to the first step
    double prompt_seconds = 0;     // from the first step to the first token
    double generation_seconds = 0; // from the first token to the end
    double policy_seconds = 0;     // the first choice's time in evictions
    std::string policy;            // the name of the policy that the request had
};

// What a request asks for.
struct Request {
    std::vector<int32_t> prompt; // at least one token
    // on_text and on_progress must be empty. max_tokens may be 0: the request only reads the
    // prompt. The first choice draws its random numbers from `seed`, as `keel run` does. Choice i
    // draws them from a seed that is made from `seed` and i.
    Generation generation;
    // Tokens that end a text, in addition to the model's end tokens. They also end a text with
    // generation.ignore_end.
    std::vector<int32_t> end_ids;
    int64_t choices = 1; // texts for this prompt. The prompt is read once and the cache is forked
    // The settings of the policy. Absent: those of the pipeline's file.
    std::optional<PolicyChoice> policy;
    // Ranges of prompt tokens that are never evicted: first token, and the token after the last. At
    // most 1000 ranges. They count against the policy's budget.
    std::vector<std::pair<int64_t, int64_t>> protect;
    // If set, on_prompt receives the probabilities of each prompt token, with this number of most
    // likely tokens. The first token has none. They are the model's probabilities with the cache
    // that the policy leaves: tokens that were evicted while the prompt was read do not count.
    std::optional<int64_t> prompt_logprobs;
    // Receives the prompt's probabilities before the first event: entry i belongs to prompt token
    // i + 1.
    std::function<void(std::vector<Logprobs>)> on_prompt;
    // Receives each event. If one of the three callbacks throws an exception, the request is
    // cancelled. Then only on_done is called.
    std::function<void(RequestEvent)> on_event;
    // Called once, after the last event of the last choice.
    std::function<void(RequestUsage)> on_done;
};

// The state of a scheduler, for metrics.
struct SchedulerStats {
    int64_t running = 0, waiting = 0; // sequences
    // Requests that submit() has taken. Each that has ended is also in `finished`, `failed` (a
    // choice has failed) or `cancelled`.
    uint64_t requests = 0, finished = 0, failed = 0, cancelled = 0;
    // Requests that submit() refused because of a limit, after drain(), or after a lost device.
    uint64_t refused = 0;
    uint64_t prompt_tokens = 0, generated_tokens = 0; // that were read, and generated
    uint64_t cached_tokens = 0;                       // of all requests, see RequestUsage
    uint64_t evicted_tokens = 0;                      // of requests that have ended, all choices
    // Bytes of all caches: after the last step, and the largest number after a step.
    uint64_t cache_bytes = 0, cache_peak_bytes = 0;
    uint64_t cache_reserved_bytes = 0; // the most that the running requests can take
    uint64_t cache_cap_bytes = 0;      // SchedulerOptions::cache_bytes
    uint64_t steps = 0;                // passes through the model
    double step_seconds = 0;           // time in them
};

// A key of PolicyChoice.
struct PolicyKey {
    std::string name;          // "budget.tokens"; for a parameter "params.window"
    std::string default_value; // as text; empty: there is none
    std::string expected;      // the allowed values: "an integer from 1 to 4096"
    std::string text;          // what the key means
};
// A policy that requests can choose.
struct PolicyInfo {
    std::string name, summary;
    std::vector<PolicyKey> params;
};

class KEEL_API Scheduler {
  public:
    // Loads a model. target, overrides and progress have the meaning that they have for Pipeline.
    explicit Scheduler(const std::string &target, const std::vector<std::string> &overrides = {},
                       const SchedulerOptions &options = {}, const Progress &progress = {});
    // Cancels all requests and waits for the scheduler's thread.
    ~Scheduler();
    Scheduler(const Scheduler &) = delete;
    Scheduler &operator=(const Scheduler &) = delete;

    // Gives a request to the scheduler and returns its id. Events may come before the function
    // returns. Throws Error(usage) if a member is wrong, if the prompt cannot fit into the context,
    // or if the caches of the request can take more than SchedulerOptions::cache_bytes;
    // Error(plugin) or Error(input) for a policy that does not exist or a wrong policy key;
    // Error(resource) if the queue is full or drain() was called; Error(runtime) after a device was
    // lost, because then nothing can run any more.
    uint64_t submit(Request request);
    // Ends a request soon; its choices end with Stop::cancelled. Does nothing if the request has
    // ended.
    void cancel(uint64_t id) noexcept;
    // Refuses new requests and returns true as soon as all requests have ended, or false after
    // `seconds`.
    bool drain(double seconds);

    SchedulerStats stats() const;
    // The policies that requests can choose, sorted by name, with their parameters.
    std::vector<PolicyInfo> policies() const;
    // The other keys of PolicyChoice, for example "budget.tokens".
    std::vector<PolicyKey> policy_keys() const;

    // These functions have the meaning that they have in Pipeline.
    std::vector<int32_t> encode(std::string_view text, bool begins = true,
                                bool parse_special = true) const;
    std::string decode(const std::vector<int32_t> &ids) const;
    int64_t context() const;
    int64_t vocab_size() const;
    Generation defaults() const;

    struct Impl;

  private:
    std::unique_ptr<Impl> impl_;
};

} // namespace keel::api
#endif
