#pragma once

#include "kv/evict/pressure.hpp"
#include "run/session.hpp"

#include <memory>
#include <optional>
#include <string>

namespace keel {

// Where a session of a hybrid runs whose backends take turns, and when it goes elsewhere. One for each session.
//
// Before a switch the new backend may be warmed up: the cache is copied there and the next tokens run on both, one after the other. What
// the new one says is held against the old one's and thrown away, the copy too; the cache that then moves is the old one's, so a warm-up
// never changes a text. It takes a second cache, on the new backend, for its time.
class Session::Hybrid {
  public:
    explicit Hybrid(Session &session);
    Hybrid(Session &session,
           const Hybrid &parent); // of a fork: a warm-up under way begins again with its next token

    void reset();
    void before_prefill();
    void note_decode() { ++written_; }
    void before_decode();
    void after_decode();
    bool stays() const; // the next decode step is taken where the last one was, as far as is known now
    // Tokens were taken back: a warm-up, whose copy has them, begins again with the next token.
    void truncated();
    Switch command(Engine &target);
    // Where a sequence begins.
    Engine &start() const;
    // All but the first `tokens` tokens are forgotten, and those are read anew on another backend. Throws an Error that says why where
    // none can.
    void rebuild(size_t tokens, const Error &why);

  private:
    using Why = BackendMove::Why;
    Engine &decode_engine() const { return chosen_ != nullptr ? *chosen_ : session_.pipeline_.engine(); }
    Engine &here() const { return *session_.parts_.front().engine; }
    // That one, or where the sequence is if its device is lost.
    Engine &alive(Engine &wanted) const { return wanted.is_lost() ? here() : wanted; }
    void begin(Engine &target, Why why, int64_t warmup);
    void judge();
    void count();
    void place();
    bool warms_up() const { return shadow_ != nullptr; }
    void drop_warmup();
    // A warm-up that was dropped, or a parent's, is to begin again.
    void want_again(Why why, Engine *target);
    void finish();
    bool move(Engine &target, Why why);
    void refuse(BackendMove &move, const std::string &error);
    void read_on(Engine &engine, size_t tokens);
    BackendMove note(const Engine &target, Why why) const;

    Session &session_;
    const pipeline::SwitchSection &config_;
    Engine *chosen_ = nullptr;    // where a switch went; NULL: as the config says
    int64_t written_ = 0;         // decode steps since the sequence began
    bool counted_ = false;        // the switch after so many tokens was tried
    Engine *commanded_ = nullptr; // where somebody asked to go
    std::unique_ptr<PressureWatch> watch_;
    // The warm-up.
    Engine *target_ = nullptr;
    Why why_ = Why::tokens;
    std::unique_ptr<KvCache> shadow_;
    int64_t wanted_ = 0, warmed_ = 0, compared_ = 0, agreed_ = 0;
    std::optional<int32_t> shadow_said_;
};

} // namespace keel
