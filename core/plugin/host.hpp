#pragma once

#include "platform/threads.hpp"

#include <keel/host.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace keel {

// The error that a plugin reported with set_error() for a failed call.
struct HostError {
    keel_status status = KEEL_OK;
    std::string message; // one line, printable
};

// The services that the core gives to plugins. It owns a keel_host table and the thread team of
// this table. A process needs only one; a test may make its own. It must outlive every object that
// a plugin made with its table.
class HostServices {
  public:
    // `threads` is the number of processors for the team. worker_count() returns this number to
    // plugins. 0: all processors that the process may use.
    explicit HostServices(uint32_t threads = 0);
    HostServices(const HostServices &) = delete;
    HostServices &operator=(const HostServices &) = delete;

    // The address stays the same while this object lives.
    const keel_host *table() const noexcept { return &table_; }
    ThreadTeam &team() noexcept { return team_; }

    // Returns the last error that a plugin set on this thread, or on a worker of a region that this
    // thread ran. Also clears the error. Errors are stored per thread, not per host. Call
    // take_error() right after a call failed, and drop_error() before a call.
    static std::optional<HostError> take_error();
    static void drop_error() noexcept;

    // Changes the value that cancelled() returns to plugins. A signal handler may call
    // request_cancel().
    void request_cancel() noexcept { cancelled_.store(1, std::memory_order_relaxed); }
    void clear_cancel() noexcept { cancelled_.store(0, std::memory_order_relaxed); }
    bool cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed) != 0; }

    // Adds a service that plugins find by name ("keel.name/1"). Call it before plugins use the
    // table. `service` must outlive this object.
    void add_extension(const std::string &id, const void *service) { extensions_[id] = service; }

  private:
    static const HostServices &self(const keel_host *host) noexcept {
        return *static_cast<const HostServices *>(host->host_data);
    }
    static keel_status KEEL_CALL run_region(const keel_host *, uint32_t n, keel_region_fn fn,
                                            void *user);
    static const void *KEEL_CALL find_extension(const keel_host *, const char *id);

    keel_host table_{};
    mutable ThreadTeam team_;
    std::atomic<int32_t> cancelled_{0};
    static_assert(std::atomic<int32_t>::is_always_lock_free,
                  "request_cancel() has to be safe in a signal handler");
    std::map<std::string, const void *, std::less<>> extensions_;
};

// Returns the name of a status: "KEEL_E_OUT_OF_MEMORY". A value from 0x10000 on is "plugin status
// 65537", and another unknown value is "status 99".
std::string status_name(keel_status status);
// Returns the meaning of a status in words: "out of memory".
std::string status_text(keel_status status);

} // namespace keel
