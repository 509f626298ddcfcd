// Keel as a library: load a model, generate text. Link keel::keel (find_package(keel)); this header
// needs the standard library alone.
//
//     keel::api::Pipeline pipeline("models/tiny");
//     keel::api::Session session(pipeline);
//     std::cout << session.generate("Once upon a time").text;
//
// Everything that fails throws keel::api::Error; what a callback of yours throws comes out of the
// call as it is. A pipeline and what was made of it belong to one thread at a time; cancel() may be
// called from any. Objects may be moved; one that was moved from can only be destroyed or assigned
// to.
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

// Whose fault it is.
enum class ErrorKind {
    usage,    // the call made no sense
    input,    // a file is missing, broken, or does not fit
    plugin,   // a plugin is missing, refused, or failed
    resource, // memory, a cap, or a context that is full
    runtime,  // the run itself failed: a number that is not finite, a lost device
    internal, // Keel broke a promise of its own
};

// what() is one line that names the place, what was expected and found, and where there is one the
// cure.
class KEEL_API Error : public std::runtime_error {
  public:
    Error(ErrorKind kind, const std::string &message);
    ~Error() override;
    ErrorKind kind() const noexcept { return kind_; }

  private:
    ErrorKind kind_;
};

// The version of the library that runs: "0.1.0".
KEEL_API const char *version() noexcept;

// What Keel says beside its results, loudest last: a warning is what runs otherwise than asked for,
// such as an op that the backend lacks.
enum class LogLevel { debug, info, warning, error };
// One message, a line without its end. May be called from any thread; what it throws is dropped.
using Log = std::function<void(LogLevel level, std::string_view message)>;

// Who hears messages of `least` and louder, of the whole process; empty: nobody, as at the start.
// Keel itself never prints. Set it before the first pipeline is made: not while another thread runs
// one.
KEEL_API void set_log(Log callback, LogLevel least = LogLevel::warning);

// "loading", bytes; "prefill", tokens. May throw to stop; what it throws comes out of the call.
using Progress = std::function<void(const char *stage, uint64_t done, uint64_t total)>;

// Why a text ended.
enum class Stop {
    end_token,   // the model ended it
    stop_string, // a stop string came; it is not part of the text
    max_tokens,
    cache_full, // context, cap or budget reached, and the policy does not evict; `detail` names the
                // key to change
    cancelled,
};

struct TokenLogprob {
    int32_t id = 0;
    double logprob = 0; // natural logarithm
};

// What the model thought of a token of the text, before temperature and penalties.
struct Logprobs {
    TokenLogprob chosen;
    std::vector<TokenLogprob> top; // likeliest first
};

// What is wanted of a generation. Those of the pipeline's own file: Pipeline::defaults(). A value
// that makes no sense (max_tokens below 1, a negative logprobs, a top_p above 1) is
// ErrorKind::usage, naming the member.
struct Generation {
    int64_t max_tokens = 128;
    std::vector<std::string> stop;   // texts that end it
    double temperature = 0.8;        // 0 to 1000000; 0: always the most likely token
    int64_t top_k = 40;              // 0 or more; 0: all
    double top_p = 0.95;             // 0 to 1; 0: always the most likely token, 1: all
    double min_p = 0.05;             // 0 to 1; 0: all
    double repetition_penalty = 1;   // 0.001 to 1000; 1: off
    int64_t repetition_window = 0;   // 0: all tokens so far
    uint64_t seed = 0;               // of a session's first draw; later ones go on
    bool ignore_end = false;         // go on past the token that ends a text
    std::optional<int64_t> logprobs; // note each token's, and those of so many of the likeliest
    // The text as it comes: whole characters, never a part of a stop string. May throw to stop.
    std::function<void(std::string_view)> on_text;
    Progress on_progress; // of the prefill
};

struct Result {
    std::string text;
    std::vector<int32_t> ids; // of the text, the token that ended it included
    Stop stop = Stop::max_tokens;
    std::string detail;
    std::vector<Logprobs> logprobs; // where they were asked for
};

// Of a session since its start or the last reset.
struct Stats {
    uint64_t prefill_tokens = 0, decode_tokens = 0;
    double prefill_seconds = 0, decode_seconds = 0;
    uint64_t kv_bytes = 0, kv_peak_bytes = 0; // of the cache alone: now, peak
    uint64_t evictions = 0;
    // Memory of the policy beside the cache (now, peak): its inputs and the arrays of evictions.
    uint64_t policy_bytes = 0, policy_peak_bytes = 0;
    // The peak of cache plus policy. At most the sum of the two other peaks.
    uint64_t held_peak_bytes = 0;
    // What evictions saved: cache plus policy when an eviction began (the largest one counts),
    // minus cache plus policy now.
    uint64_t freed_bytes = 0;
};

// A loaded model with a backend, a cache and a policy.
class KEEL_API Pipeline {
  public:
    // `target`: a pipeline file (.yaml), the folder of a model, or a GGUF file; for the latter two
    // backend cpu and policy none. `overrides` change keys of the pipeline as --set does:
    // "policy.budget.tokens=64". Plugins are looked for in the folders of KEEL_PLUGIN_PATH, then in
    // keel/plugins beside libkeel.
    explicit Pipeline(const std::string &target, const std::vector<std::string> &overrides = {},
                      const Progress &progress = {});
    ~Pipeline();
    Pipeline(Pipeline &&) noexcept;
    Pipeline &operator=(Pipeline &&) noexcept;

    // Text to token ids and back. begins: the text begins a sequence (the model's begin token is
    // put before it); else it goes on. parse_special: marks written out in the text ("<|eot_id|>")
    // become those tokens. Say false for text from people who must not be able to forge them: it is
    // plain text then.
    std::vector<int32_t> encode(std::string_view text, bool begins = true,
                                bool parse_special = true) const;
    // An id that the vocabulary does not hold is ErrorKind::usage.
    std::string decode(const std::vector<int32_t> &ids) const;

    int64_t context() const;     // tokens of a sequence at most
    int64_t vocab_size() const;  // logits of a token
    Generation defaults() const; // from the pipeline's sampling and generation
    std::string explain() const; // who runs each op: what `keel run --explain` prints

    // Ends what runs on this pipeline, from any thread or a signal handler: generate() and ask()
    // return what they have, read() throws. Holds until resume().
    void cancel() noexcept;
    void resume() noexcept;

    struct Impl;

  private:
    friend class Session;
    friend class Chat;
    std::shared_ptr<Impl> impl_; // sessions keep it alive
};

// One sequence: what was read and written so far, in its cache. Several sessions of a pipeline take
// turns.
class KEEL_API Session {
  public:
    explicit Session(Pipeline &pipeline);
    ~Session();
    Session(Session &&) noexcept;
    Session &operator=(Session &&) noexcept;

    // Reads a prompt and generates. A later call continues the session; its prompt may be empty. In
    // an empty session an empty prompt stands for the token that begins a text; if the model has no
    // such token, ErrorKind::usage. A prompt that does not fit: ErrorKind::resource, and the
    // session is unchanged. After Stop::cancelled without ids the session is unchanged too, except
    // if tokens were evicted meanwhile: then `detail` says how much of the prompt stays.
    // parse_special: as for Pipeline::encode().
    Result generate(std::string_view prompt, const Generation &options, bool parse_special = true);
    Result generate(std::string_view prompt); // with the pipeline's defaults
    Result generate(const std::vector<int32_t> &prompt, const Generation &options);

    // Token by token: reads ids, at least one; the logits of the last one, [vocab_size], valid
    // until the next call. Throws ErrorKind::usage if the pipeline is cancelled before all are
    // read; the session is then as it was, or the message says how many of them stay.
    const float *read(const std::vector<int32_t> &ids);

    std::vector<int32_t> history() const; // ids in the cache's sequence, evicted ones included
    Stats stats() const;
    void reset(); // an empty sequence, and the seed anew
    // Cache, history and random state as a file, which a session of the same model, types and
    // policy takes in. Of files that are there already only a saved session is replaced.
    void save(const std::string &path);
    void load(const std::string &path);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// A conversation, turn by turn, under the model's chat template. Only new tokens are read.
class KEEL_API Chat {
  public:
    // `chat_template`: a name as `keel chat --template` takes it; empty: the one that the model's
    // files name. Throws ErrorKind::usage where they name none.
    explicit Chat(Pipeline &pipeline, std::optional<std::string> system = std::nullopt,
                  const std::string &chat_template = {});
    ~Chat();
    Chat(Chat &&) noexcept;
    Chat &operator=(Chat &&) noexcept;

    // The question is plain text: marks written out in it are no tokens.
    Result ask(std::string_view question, const Generation &options);
    // With Pipeline::defaults(), whose max_tokens is the pipeline's generation.max_tokens (128
    // where its file has none).
    Result ask(std::string_view question);
    void reset(); // the system prompt stays
    // As those of Session. A saved chat brings its own system prompt, in the place of this one's.
    void save(const std::string &path);
    void load(const std::string &path);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace keel::api
#endif
