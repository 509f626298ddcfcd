#pragma once

#include "plugin/host.hpp"

namespace keel::cli {

// Thrown when work stops because of Ctrl-C.
struct Interrupted {};
inline constexpr int interrupted_code = 130; // 128 + SIGINT, as in shells

// While this object exists, the first Ctrl-C only requests a stop: interrupted() and the host's
// cancelled() become true. The second Ctrl-C ends the process at once. Only one object may exist at
// a time.
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
// Throws Interrupted after a Ctrl-C. For progress callbacks.
void check_interrupt();
// The progress callback of most commands. It draws the bar of console() and stops the work after a
// Ctrl-C.
void show_progress(const char *stage, uint64_t done, uint64_t total);

} // namespace keel::cli
