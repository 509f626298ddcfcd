// The beginning and copies of a session, and the forward passes that a policy asks for.
#include "pipeline/session.hpp"

#include "base/error.hpp"

namespace keel {

// Runs a session's pipeline for a policy that has the model repeat its context.
class Session::Repeater final : public Replayer {
  public:
    explicit Repeater(Session &session) : session_(session) {
        const Tokenizer *tokenizer = session.pipeline_.tokenizer();
        if (tokenizer == nullptr) return;
        whole_ = tokenizer->encode("\n\nRepeat the whole text above, word for word:\n\n", false);
        from_words_ = tokenizer->encode("\n\nRepeat the text above, word for word, starting with", false);
    }
    std::span<const int32_t> tokens() const override { return session_.history_; }
    std::span<const int32_t> instruction(bool from_words) const override {
        if (session_.pipeline_.tokenizer() == nullptr) {
            throw_error(
                ErrorKind::input,
                "policy {} asks the model in words to repeat its context, and this model has no tokenizer; "
                "choose another policy",
                session_.cache_->plan().config().policy.name);
        }
        return from_words ? from_words_ : whole_;
    }
    void forward(std::span<const int32_t> ids, std::span<const int32_t> positions, StepTap &tap) override {
        static const GraphTaps plain;
        session_.pipeline_.graph().forward(ids, positions, session_.cache_->cache().views(), 0,
                                           {&plain, &tap});
    }

  private:
    Session &session_;
    std::vector<int32_t> whole_, from_words_;
};

Session::Session(Pipeline &pipeline, CachePlan &plan)
    : pipeline_(pipeline), cache_(std::make_unique<CacheManager>(plan, pipeline.placement())) {
    history_.reserve(static_cast<size_t>(pipeline.context()));
    serve_replay();
}

Session::~Session() = default;

void Session::serve_replay() {
    if ((cache_->plan().needs().needs & KEEL_NEED_REPLAY) == 0) return;
    repeater_ = std::make_unique<Repeater>(*this);
    cache_->set_replayer(repeater_.get());
}

Session::Session(Session &parent, std::unique_ptr<CacheManager> cache)
    : pipeline_(parent.pipeline_), cache_(std::move(cache)), pending_(parent.pending_),
      loaded_from_(parent.loaded_from_), logits_(parent.logits_), rows_(parent.rows_) {
    history_.reserve(static_cast<size_t>(pipeline_.context()));
    history_ = parent.history_;
    logits_read_ = true;
    serve_replay();
}

std::unique_ptr<Session> Session::fork() {
    return fork(cache_->plan());
}

std::unique_ptr<Session> Session::fork(CachePlan &plan) {
    if (!logits_read_) logits();
    settle();
    return std::unique_ptr<Session>(new Session(*this, cache_->fork_into(plan)));
}

} // namespace keel
