#include "interrupt.hpp"

#include "console.hpp"

#include <atomic>
#include <csignal>
#include <unistd.h>

namespace keel::cli {
namespace {

std::atomic<HostServices *> asked_host{nullptr};
std::atomic<bool> asked{false};
static_assert(std::atomic<HostServices *>::is_always_lock_free &&
              std::atomic<bool>::is_always_lock_free);

extern "C" void on_interrupt(int) {
    HostServices *host = asked_host.load();
    if (asked.exchange(true) || host == nullptr) ::_exit(interrupted_code);
    host->request_cancel();
}

void set_handler(void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGINT, &action, nullptr);
}

} // namespace

InterruptGuard::InterruptGuard(HostServices &host) {
    asked_host = &host;
    set_handler(on_interrupt);
}

InterruptGuard::~InterruptGuard() {
    // The handler stays installed. If there is no work to cancel, a later Ctrl-C ends the program
    // with the same exit code.
    asked_host = nullptr;
}

bool interrupted() noexcept { return asked; }

void clear_interrupt(HostServices &host) noexcept {
    host.clear_cancel();
    asked = false;
}

void check_interrupt() {
    if (asked) throw Interrupted{};
}

void show_progress(const char *stage, uint64_t done, uint64_t total) {
    check_interrupt();
    const bool loading = std::string_view(stage) == "loading";
    console().progress(stage, done, total, loading ? Console::Unit::bytes : Console::Unit::tokens);
}

} // namespace keel::cli
