// Keel as a C++ library: load a model, generate text.
//
// Link the CMake target keel::keel (find_package(keel)). This header needs only the C++ standard
// library.
//
// HOW IT WORKS. A Pipeline is a loaded model together with a backend, a KV cache and an eviction
// policy. It is made from a pipeline file (YAML), a model folder or a GGUF file. A Session is one
// sequence of tokens and its cache. A session reads prompts and generates text. A Chat is a
// conversation that uses the model's chat template. Several sessions and chats may share a
// pipeline.
//
// EXAMPLE.
//
//     keel::api::Pipeline pipeline("models/tiny");
//     keel::api::Session session(pipeline);
//     std::cout << session.generate("Once upon a time").text;
//
// ERRORS. Every function that fails throws keel::api::Error. If your callback throws an exception,
// the call that ran the callback throws the same exception.
//
// THREADS. Only one thread at a time may use a pipeline, its sessions and its chats. cancel() is an
// exception: any thread may call it at any time.
//
// OBJECTS. Pipeline, Session and Chat can be moved. An object that was moved from can only be
// destroyed or assigned to; other calls throw Error(usage). A session or chat keeps its pipeline
// alive.
//
// All members of this header exist since version 0.1.
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
    usage,  // the arguments of the call are wrong
    input,  // a file is missing, is damaged, or does not match the model or the pipeline
    plugin, // a plugin is missing, was refused by Keel, or failed
    // there is not enough memory, a limit such as kv.max_mib is reached, or the context is full
    resource,
    runtime,  // the run failed, for example because a number is not finite or a device is lost
    internal, // a bug in Keel
};

// The exception that all functions of this header throw. what() is one line. It says where the
// error is, what was expected, what was found, and if possible what to do.
class KEEL_API Error : public std::runtime_error {
  public:
    Error(ErrorKind kind, const std::string &message);
    ~Error() override;
    ErrorKind kind() const noexcept { return kind_; }

  private:
    ErrorKind kind_;
};

// Returns the version of the library, for example "0.1.0". The string is static.
KEEL_API const char *version() noexcept;

// The importance of a message. `warning` means that Keel does not do exactly what the caller asked
// for, for example because the backend does not have an op.
enum class LogLevel { debug, info, warning, error };
// A callback that receives one message: a line without a newline at its end. Any thread may call
// it. Keel ignores exceptions that it throws.
using Log = std::function<void(LogLevel level, std::string_view message)>;

// Sets the callback that receives messages of level `least` and above, for the whole process. An
// empty callback drops all messages; this is the state at program start. Keel itself prints
// nothing. Call set_log() before the first pipeline is made, and never while another thread uses a
// pipeline.
KEEL_API void set_log(Log callback, LogLevel least = LogLevel::warning);

// A callback that receives the progress of a long call. `stage` is "loading" (then `done` and
// `total` count bytes) or "prefill" (then they count tokens). To stop the call, throw an exception;
// the call throws the same exception.
using Progress = std::function<void(const char *stage, uint64_t done, uint64_t total)>;

// The reason why generation ended.
enum class Stop {
    // The model generated its end token.
    end_token,
    // The text contained a stop string. The text ends before it.
    stop_string,
    // Generation::max_tokens tokens were generated.
    max_tokens,
    // The context, kv.max_mib or the budget is full, and the policy does not evict. Result::detail
    // names the key of the pipeline file to change.
    cache_full,
    // Pipeline::cancel() was called.
    cancelled,
};

// A token id and the natural logarithm of the token's probability.
struct TokenLogprob {
    int32_t id = 0;
    double logprob = 0;
};

// The probabilities that the model gave at one token of the text, before temperature and penalties
// were applied.
struct Logprobs {
    // The token that the text contains.
    TokenLogprob chosen;
    // The most likely tokens, the most likely one first.
    std::vector<TokenLogprob> top;
};

// Options of a generation. Pipeline::defaults() gives the options of the pipeline's file. If a
// value is outside its range, the call throws Error(usage) with the member's name.
struct Generation {
    // Largest number of tokens to generate, 1 or more.
    int64_t max_tokens = 128;
    // Stop strings. Generation ends when the text contains one of them. A stop string must not be
    // empty.
    std::vector<std::string> stop;
    // Temperature of sampling, 0 to 1000000. 0: the most likely token is always chosen.
    double temperature = 0.8;
    // Sample only from this number of the most likely tokens. 0: sample from all tokens.
    int64_t top_k = 40;
    // Sample only from the most likely tokens whose probabilities together reach this value, 0 to
    // 1. 0: the most likely token is always chosen. 1: sample from all tokens.
    double top_p = 0.95;
    // Sample only from tokens whose probability is at least this share of the most likely token's
    // probability, 0 to 1. 0: sample from all tokens.
    double min_p = 0.05;
    // Makes tokens that occurred before less likely. 0.001 to 1000; 1 has no effect.
    double repetition_penalty = 1;
    // Number of last tokens to which repetition_penalty applies. 0: all tokens so far.
    int64_t repetition_window = 0;
    // Seed of the random numbers in the session's first generation. Later generations of the
    // session continue the same sequence of random numbers.
    uint64_t seed = 0;
    // True: generation continues after the model's end token.
    bool ignore_end = false;
    // If set, Result::logprobs gets an entry for each token, with this number of most likely tokens
    // (0 or more).
    std::optional<int64_t> logprobs;
    // Receives the text while it is generated. Each piece consists of whole characters and contains
    // no part of a stop string. To stop generation, throw an exception.
    std::function<void(std::string_view)> on_text;
    // Receives the progress while the prompt is read.
    Progress on_progress;
};

// The result of a generation.
struct Result {
    std::string text;
    // Ids of the generated tokens. If an end token ended the text, it is the last id.
    std::vector<int32_t> ids;
    Stop stop = Stop::max_tokens;
    // An explanation of `stop`, as text for people. May be empty.
    std::string detail;
    // One entry for each token if Generation::logprobs is set, otherwise empty.
    std::vector<Logprobs> logprobs;
};

// Counters of one session since its start or since the last reset(). The bytes are those of this
// session only.
struct Stats {
    // Number of tokens that were read from prompts, and number of tokens that were generated.
    uint64_t prefill_tokens = 0, decode_tokens = 0;
    // Time in seconds for reading prompts, and for generating tokens.
    double prefill_seconds = 0, decode_seconds = 0;
    // Bytes of the session's KV cache: the current number and the largest number so far.
    uint64_t kv_bytes = 0, kv_peak_bytes = 0;
    // Number of evictions.
    uint64_t evictions = 0;
    // Bytes that the policy needs in addition to the cache, for its inputs and for evictions: the
    // current number and the largest number so far.
    uint64_t policy_bytes = 0, policy_peak_bytes = 0;
    // Largest sum of kv_bytes and policy_bytes so far. The two other peaks can have been reached at
    // different times, so this value is at most their sum.
    uint64_t held_peak_bytes = 0;
    // Bytes that evictions freed: the largest sum of kv_bytes and policy_bytes at the start of an
    // eviction, minus the current sum.
    uint64_t freed_bytes = 0;
};

// A loaded model with a backend, a KV cache and an eviction policy.
class KEEL_API Pipeline {
  public:
    // Loads a model. `target` is a pipeline file (.yaml), a model folder, or a GGUF file. For a
    // folder or a GGUF file, the backend is `cpu` and the policy is `none`. `overrides` set keys of
    // the pipeline, like the option --set: "policy.budget.tokens=64". Plugins are searched in the
    // folders of the environment variable KEEL_PLUGIN_PATH, then in the folder keel/plugins next to
    // libkeel. `progress` receives the stage "loading".
    explicit Pipeline(const std::string &target, const std::vector<std::string> &overrides = {},
                      const Progress &progress = {});
    ~Pipeline();
    Pipeline(Pipeline &&) noexcept;
    Pipeline &operator=(Pipeline &&) noexcept;

    // Converts text to token ids.
    // begins: true if the text starts a sequence; then the model's begin token is put before it.
    // false if the text continues a sequence.
    // parse_special: true converts special tokens that are written in the text, for example
    // "<|eot_id|>", to their ids. false treats them as plain text. Use false for text from users
    // who must not be able to write special tokens.
    std::vector<int32_t> encode(std::string_view text, bool begins = true,
                                bool parse_special = true) const;
    // Converts token ids to text. Throws Error(usage) for an id that is not in the vocabulary.
    std::string decode(const std::vector<int32_t> &ids) const;

    // Returns the largest number of tokens in a sequence.
    int64_t context() const;
    // Returns the number of tokens in the vocabulary, which is also the number of logits.
    int64_t vocab_size() const;
    // Returns the options that the sections `sampling` and `generation` of the pipeline's file set.
    Generation defaults() const;
    // Returns text that says which backend and kernel runs each op. `keel run --explain` prints the
    // same text.
    std::string explain() const;

    // Stops the running calls on this pipeline. generate() and ask() then return the text so far
    // with Stop::cancelled, and read() throws. Later calls stop too, until resume() is called. Any
    // thread and any signal handler may call cancel().
    void cancel() noexcept;
    // Ends the effect of cancel(), so that later calls run again.
    void resume() noexcept;

    struct Impl;

  private:
    friend class Session;
    friend class Chat;
    std::shared_ptr<Impl> impl_; // sessions and chats keep it alive
};

// One sequence of tokens, with its KV cache. The sequence consists of the tokens that were read and
// generated so far. A pipeline may have several sessions. Only one of them runs at a time.
class KEEL_API Session {
  public:
    explicit Session(Pipeline &pipeline);
    ~Session();
    Session(Session &&) noexcept;
    Session &operator=(Session &&) noexcept;

    // Reads a prompt and generates text after it. A later call continues the sequence; then the
    // prompt may be empty. In an empty session, an empty prompt stands for the model's begin token;
    // throws Error(usage) if the model has none. Throws Error(resource) if the prompt does not fit;
    // then the session is unchanged. If the result has Stop::cancelled and no ids, the session is
    // unchanged too. There is one exception: if tokens were evicted in the meantime, `detail` says
    // how much of the prompt was read. parse_special has the meaning of Pipeline::encode().
    Result generate(std::string_view prompt, const Generation &options, bool parse_special = true);
    // Does the same with the options Pipeline::defaults().
    Result generate(std::string_view prompt);
    // Does the same with a prompt of token ids. No token is added to them.
    Result generate(const std::vector<int32_t> &prompt, const Generation &options);

    // Reads at least one token and returns the logits after the last token: [vocab_size]. The
    // session owns the logits, which are valid until its next call. This function is for callers
    // that choose tokens themselves. Throws Error(usage) if the pipeline is cancelled before all
    // tokens are read. Then either the session is unchanged, or the message says how many tokens
    // were read.
    const float *read(const std::vector<int32_t> &ids);

    // Returns all tokens of the sequence, including evicted ones.
    std::vector<int32_t> history() const;
    Stats stats() const;
    // Removes all tokens of the sequence. The next generation starts with its seed again.
    void reset();
    // Writes the cache, the history and the random state to a file. A session with the same model,
    // cache types and policy can load the file. An existing file is replaced only if it is a saved
    // session.
    void save(const std::string &path);
    // Replaces the sequence by a saved one. Throws Error(input) if the file does not fit this
    // session.
    void load(const std::string &path);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// A conversation in turns that uses the model's chat template. Each turn reads only the new tokens,
// and earlier turns that the template changes.
class KEEL_API Chat {
  public:
    // `system` is the system prompt, if there is one. `chat_template` is a template name that `keel
    // chat --template` accepts. If it is empty, the template comes from the model's files; throws
    // Error(usage) if they contain none, or one that Keel cannot use.
    explicit Chat(Pipeline &pipeline, std::optional<std::string> system = std::nullopt,
                  const std::string &chat_template = {});
    ~Chat();
    Chat(Chat &&) noexcept;
    Chat &operator=(Chat &&) noexcept;

    // Asks a question and generates the answer. The question is plain text: special tokens that are
    // written in it have no effect.
    Result ask(std::string_view question, const Generation &options);
    // Does the same with the options Pipeline::defaults(). max_tokens is generation.max_tokens of
    // the pipeline's file, or 128 if the file does not set this key.
    Result ask(std::string_view question);
    // Removes all turns of the conversation. The system prompt stays.
    void reset();
    // These functions work as in Session. A loaded chat contains its own system prompt, which
    // replaces the system prompt of this chat.
    void save(const std::string &path);
    void load(const std::string &path);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace keel::api
#endif
