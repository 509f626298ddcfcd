// The beginning and copies of a session, and the forward passes that a policy asks for.
#include "run/session_hybrid.hpp"

#include "base/error.hpp"

namespace keel {

// Runs a session's pipeline for a policy that has the model repeat its context.
class Session::Repeater final : public SequenceForward {
  public:
    explicit Repeater(Session &session) : session_(session) {
        const Tokenizer *tokenizer = session.pipeline_.tokenizer();
        if (tokenizer == nullptr) return;
        whole_ = tokenizer->encode("\n\nRepeat the whole text above, word for word:\n\n", false);
        from_words_ =
            tokenizer->encode("\n\nRepeat the text above, word for word, starting with", false);
    }
    std::span<const int32_t> tokens() const override { return session_.history_; }
    std::span<const int32_t> instruction(bool from_words) const override {
        if (session_.pipeline_.tokenizer() == nullptr) {
            throw_error(ErrorKind::input,
                        "policy {} asks the model in words to repeat its context, and this model "
                        "has no tokenizer; "
                        "choose another policy",
                        session_.cache().plan().config().policy.name);
        }
        return from_words ? from_words_ : whole_;
    }
    void forward(std::span<const int32_t> ids, std::span<const int32_t> positions,
                 StepTap &tap) override {
        session_.engine().graph->forward({.positions = positions,
                                          .kv = session_.cache().cache().views(),
                                          .ids = ids,
                                          .tap = &tap});
    }

  private:
    Session &session_;
    std::vector<int32_t> whole_, from_words_;
};

Session::Session(Pipeline &pipeline, CachePlan &plan) : pipeline_(pipeline) {
    history_.reserve(static_cast<size_t>(pipeline.context()));
    switch (pipeline.is_own(plan) ? pipeline.mode() : pipeline::HybridMode::none) {
    case pipeline::HybridMode::by_layers:
        for (const auto &engine : pipeline.engines())
            add_part(*engine, *engine->cache_plan);
        break;
    case pipeline::HybridMode::taking_turns:
        start_hybrid();
        break;
    case pipeline::HybridMode::none:
        add_part(pipeline.engine(), plan);
    }
    serve_replay();
}

Session::Session(Pipeline &pipeline, CachePlan &plan, std::shared_ptr<KvArena> arena)
    : pipeline_(pipeline) {
    history_.reserve(static_cast<size_t>(pipeline.context()));
    parts_.push_back({&pipeline.engine(), std::make_unique<CacheManager>(plan, std::move(arena))});
    serve_replay();
}

Session::~Session() = default;

void Session::add_part(Engine &engine, CachePlan &plan) {
    parts_.push_back({&engine, std::make_unique<CacheManager>(plan, engine.placement())});
}

void Session::serve_replay() {
    if ((cache().plan().needs().needs & KEEL_NEED_REPLAY) == 0) return;
    if (!repeater_) repeater_ = std::make_unique<Repeater>(*this);
    cache().set_forward(repeater_.get());
}

Session::Session(Session &parent, std::vector<Part> parts)
    : pipeline_(parent.pipeline_), parts_(std::move(parts)), pending_(parent.pending_),
      loaded_from_(parent.loaded_from_), logits_(parent.logits_), results_(parent.results_),
      rows_(parent.rows_) {
    history_.reserve(static_cast<size_t>(pipeline_.context()));
    history_ = parent.history_;
    logits_read_ = true;
    fork_hybrid(parent);
    serve_replay();
}

std::unique_ptr<Session> Session::fork() {
    if (!logits_read_) logits();
    settle();
    std::vector<Part> parts;
    for (const Part &part : parts_)
        parts.push_back({part.engine, part.cache->fork()});
    return std::unique_ptr<Session>(new Session(*this, std::move(parts)));
}

std::unique_ptr<Session> Session::fork(CachePlan &plan) {
    if (&plan == &cache().plan()) return fork();
    if (parts_.size() != 1 || hybrid_)
        throw_error(ErrorKind::internal, "a hybrid's session is forked under another policy");
    if (!logits_read_) logits();
    settle();
    std::vector<Part> parts;
    parts.push_back({parts_.front().engine, cache().fork_into(plan)});
    return std::unique_ptr<Session>(new Session(*this, std::move(parts)));
}

} // namespace keel
