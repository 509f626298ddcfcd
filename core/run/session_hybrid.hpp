#pragma once

#include "kv/evict/pressure.hpp"
#include "run/session.hpp"

#include <memory>
#include <string>

namespace keel {

// Where a session of a hybrid runs whose backends take turns, and when it goes elsewhere. One for
// each session.
//
// Before a switch the new backend is warmed up: it runs dummy tokens on a cache of their own, which
// is thrown away. So its kernels are compiled and its memory is mapped before the sequence goes
// there.
class Session::Hybrid {
  public:
    explicit Hybrid(Session &session);
    Hybrid(Session &session, const Hybrid &parent); // of a fork

    void reset();
    void before_prefill();
    void note_decode() { ++written_; }
    void before_decode();
    bool
    stays() const; // the next decode step is taken where the last one was, as far as is known now
    Switch command(Engine &target);
    // Where a sequence begins.
    Engine &start() const;
    // All but the first `tokens` tokens are forgotten, and those are read anew on another backend.
    // Throws an Error that says why where none can.
    void rebuild(size_t tokens, const Error &why);

  private:
    using Why = BackendMove::Why;
    Engine &decode_engine() const {
        return chosen_ != nullptr ? *chosen_ : session_.pipeline_.engine();
    }
    Engine &here() const { return *session_.parts_.front().engine; }
    // That one, or where the sequence is if its device is lost.
    Engine &alive(Engine &wanted) const { return wanted.is_lost() ? here() : wanted; }
    void begin(Engine &target, Why why, int64_t warmup);
    void count();
    void place();
    // Runs `tokens` decode steps of a dummy token on the target, on a cache of their own. Returns
    // how many: fewer if the cache is full or the user cancels.
    int64_t warm_up(Engine &target, int64_t tokens);
    // Warms the target up with `warmup` tokens, then moves the cache there. False: the sequence
    // stays, and a warning said why.
    bool move(Engine &target, Why why, int64_t warmup = 0);
    void refuse(BackendMove &move, const std::string &error);
    void read_on(Engine &engine, size_t tokens);
    BackendMove note(const Engine &target, Why why) const;

    Session &session_;
    const pipeline::SwitchSection &config_;
    Engine *chosen_ = nullptr; // where a switch went; NULL: as the config says
    int64_t written_ = 0;      // decode steps since the sequence began
    bool counted_ = false;     // the switch after so many tokens was tried
    std::unique_ptr<PressureWatch> watch_;
};

} // namespace keel
