// The public C++ API. It is a thin layer over core/run and does not expose types of the core.
#include <keel/keel.hpp>

#include "convert.hpp"
#include "errors.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "config/target.hpp"
#include "run/conversation.hpp"
#include "run/explain.hpp"
#include "run/session_file.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

namespace keel::api {
namespace {

[[noreturn]] void refuse_moved() { throw Error(ErrorKind::usage, "the object was moved from"); }

} // namespace

Error::Error(ErrorKind kind, const std::string &message)
    : std::runtime_error(message), kind_(kind) {}
Error::~Error() = default;

const char *version() noexcept { return KEEL_VERSION; }

struct Pipeline::Impl {
    std::shared_ptr<HostServices> host = std::make_shared<HostServices>();
    std::unique_ptr<keel::Pipeline> pipeline;
};

struct Session::Impl {
    std::shared_ptr<Pipeline::Impl> owner;
    keel::Session session;
    std::optional<Rng::State> random;
    explicit Impl(std::shared_ptr<Pipeline::Impl> of)
        : owner(std::move(of)), session(*owner->pipeline) {}
};

struct Chat::Impl {
    std::shared_ptr<Pipeline::Impl> owner;
    keel::Session session;
    Conversation conversation;
    Impl(std::shared_ptr<Pipeline::Impl> of, ChatTemplate chat, std::optional<std::string> system)
        : owner(std::move(of)), session(*owner->pipeline),
          conversation(session, std::move(chat), std::move(system)) {}
};

Pipeline::Pipeline(const std::string &target, const std::vector<std::string> &overrides,
                   const Progress &progress)
    : impl_(std::make_shared<Impl>()) {
    covered([&] {
        PipelineOptions options;
        options.host = impl_->host;
        options.progress = progress_of(progress);
        options.has_system_prompt = true;
        impl_->pipeline = std::make_unique<keel::Pipeline>(
            pipeline::config_for_target(target, overrides), options);
    });
}

Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline &&) noexcept = default;
Pipeline &Pipeline::operator=(Pipeline &&) noexcept = default;

std::vector<int32_t> Pipeline::encode(std::string_view text, bool begins,
                                      bool parse_special) const {
    if (!impl_) refuse_moved();
    return covered([&] {
        return impl_->pipeline->tokenizer()->encode(
            text, EncodeOptions{
                      .add_special = begins, .parse_special = parse_special, .continues = !begins});
    });
}

std::string Pipeline::decode(const std::vector<int32_t> &ids) const {
    if (!impl_) refuse_moved();
    return covered([&] {
        check_ids(ids, "Pipeline::decode", *impl_->pipeline);
        return impl_->pipeline->tokenizer()->decode(ids);
    });
}

int64_t Pipeline::context() const {
    if (!impl_) refuse_moved();
    return impl_->pipeline->context();
}

int64_t Pipeline::vocab_size() const {
    if (!impl_) refuse_moved();
    return impl_->pipeline->model().vocab_size;
}

Generation Pipeline::defaults() const {
    if (!impl_) refuse_moved();
    return generation_of(impl_->pipeline->config());
}

std::string Pipeline::explain() const {
    if (!impl_) refuse_moved();
    return covered([&] { return explain_pipeline(*impl_->pipeline); });
}

void Pipeline::cancel() noexcept {
    if (impl_) impl_->host->request_cancel();
}

void Pipeline::resume() noexcept {
    if (impl_) impl_->host->clear_cancel();
}

Session::Session(Pipeline &pipeline) {
    if (!pipeline.impl_) refuse_moved();
    covered([&] { impl_ = std::make_unique<Impl>(pipeline.impl_); });
}

Session::~Session() = default;
Session::Session(Session &&) noexcept = default;
Session &Session::operator=(Session &&) noexcept = default;

Result Session::generate(const std::vector<int32_t> &prompt, const Generation &options) {
    if (!impl_) refuse_moved();
    return covered([&] {
        GenerateOptions o = options_of(options);
        if (impl_->random) o.random = impl_->random;
        o.lookup = *impl_->owner->pipeline->config().generation.lookup;
        check_ids(prompt, "Session::generate", *impl_->owner->pipeline);
        GenerateResult result = keel::generate(impl_->session, prompt, o);
        if (!result.ids.empty()) impl_->random = result.random;
        return result_of(std::move(result));
    });
}

Result Session::generate(std::string_view prompt, const Generation &options, bool parse_special) {
    if (!impl_) refuse_moved();
    const bool begins = impl_->session.tokens() == 0;
    const EncodeOptions how{
        .add_special = begins, .parse_special = parse_special, .continues = !begins};
    const auto ids =
        covered([&] { return impl_->owner->pipeline->tokenizer()->encode(prompt, how); });
    return generate(ids, options);
}

Result Session::generate(std::string_view prompt) {
    if (!impl_) refuse_moved();
    return generate(prompt, generation_of(impl_->owner->pipeline->config()));
}

const float *Session::read(const std::vector<int32_t> &ids) {
    if (!impl_) refuse_moved();
    return covered([&] {
        const auto vocabulary = impl_->owner->pipeline->model().vocab_size;
        check_ids(ids, "Session::read", *impl_->owner->pipeline);
        if (ids.empty())
            throw_error(keel::ErrorKind::usage,
                        "Session::read: expected ids, found none; there is no token to read");
        std::vector<int32_t> all(ids);
        if (const auto pending = impl_->session.pending()) all.insert(all.begin(), *pending);
        const int64_t before = impl_->session.tokens();
        if (!impl_->session.prefill(all)) {
            throw_error(keel::ErrorKind::usage,
                        "reading was cancelled; {} of {} tokens were read and stay in the cache; "
                        "call resume() before the next call",
                        impl_->session.tokens() - before, all.size());
        }
        const auto logits = impl_->session.logits();
        return logits.data() + (logits.size() - static_cast<size_t>(vocabulary));
    });
}

std::vector<int32_t> Session::history() const {
    if (!impl_) refuse_moved();
    const auto ids = impl_->session.history();
    return {ids.begin(), ids.end()};
}

Stats Session::stats() const {
    if (!impl_) refuse_moved();
    const SessionStats &s = impl_->session.stats();
    Stats out;
    out.prefill_tokens = s.prefill_tokens;
    out.decode_tokens = s.decode_tokens;
    out.prefill_seconds = s.prefill_seconds;
    out.decode_seconds = s.decode_seconds;
    out.kv_bytes = s.kv_bytes;
    out.kv_peak_bytes = s.kv_peak_bytes;
    out.evictions = s.evictions;
    out.policy_bytes = s.policy_bytes;
    out.policy_peak_bytes = s.policy_peak_bytes;
    out.held_peak_bytes = s.held_peak_bytes;
    out.freed_bytes = s.freed_bytes;
    return out;
}

void Session::reset() {
    if (!impl_) refuse_moved();
    covered([&] {
        impl_->session.reset();
        impl_->random.reset();
    });
}

void Session::save(const std::string &path) {
    if (!impl_) refuse_moved();
    covered([&] { save_session(impl_->session, path, {impl_->random, {}}); });
}

void Session::load(const std::string &path) {
    if (!impl_) refuse_moved();
    covered([&] { impl_->random = load_session(impl_->session, path).random; });
}

Chat::Chat(Pipeline &pipeline, std::optional<std::string> system,
           const std::string &chat_template) {
    if (!pipeline.impl_) refuse_moved();
    covered([&] {
        ChatTemplate chat =
            choose_chat_template(*pipeline.impl_->pipeline->config().model.path, chat_template,
                                 {"a Session", "Chat's argument chat_template"});
        impl_ = std::make_unique<Impl>(pipeline.impl_, std::move(chat), std::move(system));
    });
}

Chat::~Chat() = default;
Chat::Chat(Chat &&) noexcept = default;
Chat &Chat::operator=(Chat &&) noexcept = default;

Result Chat::ask(std::string_view question, const Generation &options) {
    if (!impl_) refuse_moved();
    return covered([&] {
        GenerateOptions o = options_of(options);
        o.lookup = *impl_->owner->pipeline->config().generation.lookup;
        return result_of(impl_->conversation.ask(question, o));
    });
}

Result Chat::ask(std::string_view question) {
    if (!impl_) refuse_moved();
    return ask(question, generation_of(impl_->owner->pipeline->config()));
}

void Chat::reset() {
    if (!impl_) refuse_moved();
    covered([&] { impl_->conversation.reset(); });
}

void Chat::save(const std::string &path) {
    if (!impl_) refuse_moved();
    covered([&] { impl_->conversation.save(path); });
}

void Chat::load(const std::string &path) {
    if (!impl_) refuse_moved();
    covered([&] { impl_->conversation.load(path); });
}

} // namespace keel::api
