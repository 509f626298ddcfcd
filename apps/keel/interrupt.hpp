#pragma once

#include "plugin/host.hpp"

namespace keel::cli {

// Thrown if work stops because of Ctrl-C.
struct Interrupted {};
inline constexpr int interrupted_code = 130; // exit code 128 + SIGINT, as in shells

// While this object exists, the first Ctrl-C only asks for a stop: after the first Ctrl-C,
// interrupted() and the host's cancelled() return true. The second Ctrl-C ends the process
// immediately. Only one InterruptGuard may exist at a time.
class InterruptGuard {
  public:
    explicit InterruptGuard(HostServices &host);
    ~InterruptGuard();
    InterruptGuard(const InterruptGuard &) = delete;
    InterruptGuard &operator=(const InterruptGuard &) = delete;
};

// True after a Ctrl-C.
bool interrupted() noexcept;
// Call this function when the interrupted work has ended. After the call, the next Ctrl-C counts as
// the first Ctrl-C. The function is for commands that continue after a Ctrl-C, such as a chat.
void clear_interrupt(HostServices &host) noexcept;
// Throws Interrupted after a Ctrl-C. Progress callbacks call this function.
void check_interrupt();
// The progress callback of most commands. Draws the progress bar of console(). Throws Interrupted
// after a Ctrl-C.
void show_progress(const char *stage, uint64_t done, uint64_t total);

} // namespace keel::cli
