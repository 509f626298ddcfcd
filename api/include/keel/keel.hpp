// Keel as a C++ library: load a model, generate text.
//
// Link the CMake target keel::keel (find_package(keel)). This header needs only the C++ standard
// library.
//
// HOW IT WORKS. A Pipeline is a loaded model together with a backend, a KV cache and an eviction
// policy. It is made from a pipeline file (YAML), a model folder or a GGUF file. A Session is one
// sequence of tokens and its cache: it reads prompts and generates text. A Chat is a conversation
// that uses the model's chat template. Several sessions and chats may share a pipeline.
//
// EXAMPLE.
//
//     keel::api::Pipeline pipeline("models/tiny");
//     keel::api::Session session(pipeline);
//     std::cout << session.generate("Once upon a time").text;
//
// ERRORS. Every function that fails throws keel::api::Error. If a callback of yours throws, the
// call that ran the callback throws the same exception.
//
// THREADS. Use a pipeline, its sessions and its chats from one thread at a time. Only cancel() may
// be called from any thread at any time.
//
// OBJECTS. Pipeline, Session and Chat can be moved. An object that was moved from can only be
// destroyed or assigned to; other calls throw Error(usage). A session or chat keeps its pipeline
// alive.
//
// Everything here exists since 0.1.
#ifndef KEEL_KEEL_HPP
#define KEEL_KEEL_HPP

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#define KEEL_API __attribute__((visibility("default")))

namespace keel::api {

// The cause of an error.
enum class ErrorKind {
    usage,    // the arguments of the call are wrong
    input,    // a file is missing, broken, or does not fit
    plugin,   // a plugin is missing, was refused, or failed
    resource, // not enough memory, a limit such as kv.max_mib, or a full context
    runtime,  // the run failed: a number that is not finite, a lost device
    internal, // a bug of Keel
};

// The exception of all functions here. what() is one line: the place, what was expected, what was
// found, and if possible what to do.
class KEEL_API Error : public std::runtime_error {
  public:
    Error(ErrorKind kind, const std::string &message);
    ~Error() override;
    ErrorKind kind() const noexcept { return kind_; }

  private:
    ErrorKind kind_;
};

// The version of the library, such as "0.1.0". A static string.
KEEL_API const char *version() noexcept;

// How important a message is. `warning`: Keel does something else than the caller asked for, for
// example because the backend lacks an op.
enum class LogLevel { debug, info, warning, error };
// Receives one message: a line without the newline at its end. Any thread may call it. Exceptions
// that it throws are dropped.
using Log = std::function<void(LogLevel level, std::string_view message)>;

// Sets the callback for messages of level `least` and above, for the whole process. An empty
// callback (the state at the start) drops all messages. Keel itself prints nothing. Call it before
// the first pipeline is made, and never while another thread uses a pipeline.
KEEL_API void set_log(Log callback, LogLevel least = LogLevel::warning);

// Receives the progress of a long call. `stage` is "loading" (done and total are bytes) or
// "prefill" (tokens). To stop the call, throw an exception: the call then throws it.
using Progress = std::function<void(const char *stage, uint64_t done, uint64_t total)>;

// Why generation ended.
enum class Stop {
    // The model generated its end token.
    end_token,
    // The text contained a stop string. The text ends before it.
    stop_string,
    // Generation::max_tokens tokens were generated.
    max_tokens,
    // The context, kv.max_mib or the budget is full and the policy does not evict. Result::detail
    // names the key to change.
    cache_full,
    // Pipeline::cancel() was called.
    cancelled,
};

// A token and the natural logarithm of its probability.
struct TokenLogprob {
    int32_t id = 0;
    double logprob = 0;
};

// Probabilities that the model gave for one token of the text, before temperature and penalties.
struct Logprobs {
    // The token in the text.
    TokenLogprob chosen;
    // The most likely tokens, the likeliest first.
    std::vector<TokenLogprob> top;
};

// Options of a generation. Pipeline::defaults() gives the options of the pipeline's file. If a
// value is outside its range, the call throws Error(usage) with the member's name.
struct Generation {
    // The most tokens to generate. 1 or more.
    int64_t max_tokens = 128;
    // Stop strings. Generation ends when the text contains one. None may be empty.
    std::vector<std::string> stop;
    // 0 to 1000000. 0: always the most likely token.
    double temperature = 0.8;
    // Draw only from this many of the most likely tokens. 0 or more; 0: from all.
    int64_t top_k = 40;
    // Draw only from the most likely tokens that together have this probability. 0 to 1; 0: always
    // the most likely token, 1: from all.
    double top_p = 0.95;
    // Draw only from tokens with at least this share of the most likely token's probability. 0 to
    // 1; 0: from all.
    double min_p = 0.05;
    // Makes tokens that occurred before less likely. 0.001 to 1000; 1: off.
    double repetition_penalty = 1;
    // The last tokens to which repetition_penalty applies. 0 or more; 0: all tokens so far.
    int64_t repetition_window = 0;
    // Seed of the session's first generation. Later generations of the session continue with the
    // same random numbers.
    uint64_t seed = 0;
    // true: generation continues after the model's end token.
    bool ignore_end = false;
    // If set, Result::logprobs has an entry for each token, with this many most likely tokens. 0 or
    // more.
    std::optional<int64_t> logprobs;
    // Receives the text while it is generated. Each piece has whole characters and no part of a
    // stop string. To stop, throw an exception.
    std::function<void(std::string_view)> on_text;
    // Receives the progress of reading the prompt.
    Progress on_progress;
};

// The result of a generation.
struct Result {
    std::string text;
    // Tokens of the text. If a token ended the text, it is the last one here.
    std::vector<int32_t> ids;
    Stop stop = Stop::max_tokens;
    // More about `stop`, for people. May be empty.
    std::string detail;
    // One entry for each token, if Generation::logprobs is set. Else empty.
    std::vector<Logprobs> logprobs;
};

// Counters of a session since its start or the last reset(). Bytes count only this session.
struct Stats {
    // Tokens read from prompts, and tokens generated one by one.
    uint64_t prefill_tokens = 0, decode_tokens = 0;
    // Time for these, in seconds.
    double prefill_seconds = 0, decode_seconds = 0;
    // Bytes of the KV cache: now, and the largest number so far.
    uint64_t kv_bytes = 0, kv_peak_bytes = 0;
    // Number of evictions.
    uint64_t evictions = 0;
    // Bytes that the policy needs besides the cache, for its inputs and for evictions: now, and the
    // largest number so far.
    uint64_t policy_bytes = 0, policy_peak_bytes = 0;
    // The largest sum of cache and policy so far. At most the sum of the two other peaks.
    uint64_t held_peak_bytes = 0;
    // Bytes that evictions freed: the largest sum of cache and policy at the start of an eviction,
    // minus the sum now.
    uint64_t freed_bytes = 0;
};

// A loaded model with a backend, a KV cache and an eviction policy.
class KEEL_API Pipeline {
  public:
    // Loads a model. `target` is a pipeline file (.yaml), a model folder, or a GGUF file. For a
    // folder or a GGUF file, the backend is `cpu` and the policy `none`. `overrides` set keys of
    // the pipeline, as the option --set does: "policy.budget.tokens=64". Plugins are searched in
    // the folders of the environment variable KEEL_PLUGIN_PATH, then in keel/plugins beside
    // libkeel. `progress` gets the stage "loading".
    explicit Pipeline(const std::string &target, const std::vector<std::string> &overrides = {},
                      const Progress &progress = {});
    ~Pipeline();
    Pipeline(Pipeline &&) noexcept;
    Pipeline &operator=(Pipeline &&) noexcept;

    // Converts text to token ids.
    // begins: true if the text starts a sequence; the model's begin token is then put before it.
    // false if it continues one. parse_special: true turns special tokens that are written in the
    // text, such as "<|eot_id|>", into these tokens. Use false for text from users who must not be
    // able to write special tokens; the text is then plain.
    std::vector<int32_t> encode(std::string_view text, bool begins = true,
                                bool parse_special = true) const;
    // Converts token ids to text. Throws Error(usage) for an id that is not in the vocabulary.
    std::string decode(const std::vector<int32_t> &ids) const;

    // The most tokens of a sequence.
    int64_t context() const;
    // Number of tokens in the vocabulary, which is the number of logits.
    int64_t vocab_size() const;
    // The options in the sections `sampling` and `generation` of the pipeline's file.
    Generation defaults() const;
    // Which backend and kernel runs each op: the text that `keel run --explain` prints.
    std::string explain() const;

    // Stops the running calls on this pipeline. generate() and ask() return the text so far, with
    // Stop::cancelled. read() throws. Any thread and any signal handler may call cancel(). It also
    // stops later calls, until resume().
    void cancel() noexcept;
    // Ends the effect of cancel().
    void resume() noexcept;

    struct Impl;

  private:
    friend class Session;
    friend class Chat;
    std::shared_ptr<Impl> impl_; // sessions keep it alive
};

// One sequence of tokens and its KV cache: the tokens that were read and generated so far. A
// pipeline may have several sessions. Only one of them runs at a time.
class KEEL_API Session {
  public:
    explicit Session(Pipeline &pipeline);
    ~Session();
    Session(Session &&) noexcept;
    Session &operator=(Session &&) noexcept;

    // Reads a prompt and generates text after it. A later call continues the sequence; then the
    // prompt may be empty. In an empty session, an empty prompt means the model's begin token;
    // throws Error(usage) if the model has none. Throws Error(resource) if the prompt does not fit;
    // the session is then unchanged. If the result has Stop::cancelled and no ids, the session is
    // unchanged too, unless tokens were evicted in the meantime: then `detail` says how much of the
    // prompt was read. parse_special: as in Pipeline::encode().
    Result generate(std::string_view prompt, const Generation &options, bool parse_special = true);
    // With Pipeline::defaults().
    Result generate(std::string_view prompt);
    // With a prompt of token ids, which is read as it is.
    Result generate(const std::vector<int32_t> &prompt, const Generation &options);

    // Reads at least one token and returns the logits after the last one: [vocab_size]. The session
    // owns them; they are valid until its next call. For callers that choose tokens themselves.
    // Throws Error(usage) if the pipeline is cancelled before all tokens are read. The session is
    // then unchanged, or the message says how many tokens were read.
    const float *read(const std::vector<int32_t> &ids);

    // All tokens of the sequence, evicted ones included.
    std::vector<int32_t> history() const;
    Stats stats() const;
    // Empties the sequence. The next generation starts with its seed again.
    void reset();
    // Writes cache, history and random state to a file. A session with the same model, cache types
    // and policy can load it. Replaces an existing file only if it is a saved session.
    void save(const std::string &path);
    // Replaces the sequence by a saved one. Throws Error(input) if the file does not fit.
    void load(const std::string &path);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// A conversation in turns, with the model's chat template. Each turn reads only the new tokens.
class KEEL_API Chat {
  public:
    // `system`: the system prompt, if any. `chat_template`: a name that `keel chat --template`
    // takes. Empty: the template that the model's files name; throws Error(usage) if they name
    // none.
    explicit Chat(Pipeline &pipeline, std::optional<std::string> system = std::nullopt,
                  const std::string &chat_template = {});
    ~Chat();
    Chat(Chat &&) noexcept;
    Chat &operator=(Chat &&) noexcept;

    // Asks a question and generates the answer. The question is plain text: special tokens written
    // in it have no effect.
    Result ask(std::string_view question, const Generation &options);
    // With Pipeline::defaults(). Its max_tokens is generation.max_tokens of the pipeline's file, or
    // 128 without that key.
    Result ask(std::string_view question);
    // Empties the conversation; the system prompt stays.
    void reset();
    // As in Session. A loaded chat brings its own system prompt, which replaces the one given here.
    void save(const std::string &path);
    void load(const std::string &path);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace keel::api
#endif
