#pragma once

#include "plugin/host.hpp"

namespace keel::cli {

// Thrown where work was left because of Ctrl-C.
struct Interrupted {};
inline constexpr int interrupted_code = 130; // 128 + SIGINT, as shells have it

// While it exists, the first Ctrl-C only requests a stop: interrupted() is true, and so is the
// host's cancelled(). The second ends the process at once. One at a time.
class InterruptGuard {
  public:
    explicit InterruptGuard(HostServices &host);
    ~InterruptGuard();
    InterruptGuard(const InterruptGuard &) = delete;
    InterruptGuard &operator=(const InterruptGuard &) = delete;
};

bool interrupted() noexcept;
// The interrupted work has ended, so the next Ctrl-C counts as the first again. For programs that
// continue, such as a chat.
void clear_interrupt(HostServices &host) noexcept;
// Throws Interrupted after a Ctrl-C: for progress callbacks.
void check_interrupt();
// The progress callback of most commands: draws the bar of console(), and lets Ctrl-C end the work.
void show_progress(const char *stage, uint64_t done, uint64_t total);

} // namespace keel::cli
