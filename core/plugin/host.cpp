#include "plugin/host.hpp"

#include "base/display.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

namespace keel {
namespace {

// A fixed buffer, so that reporting "out of memory" allocates nothing.
struct ErrorSlot {
    static constexpr size_t capacity = 1024;
    bool set = false;
    keel_status status = KEEL_OK;
    char text[capacity] = {};

    void store(keel_status why, const char *utf8) noexcept {
        const size_t n = utf8 == nullptr ? 0 : ::strnlen(utf8, capacity - 1);
        std::copy_n(utf8 == nullptr ? "" : utf8, n, text);
        text[n] = 0;
        status = why;
        set = true;
    }
};

thread_local ErrorSlot last_error;

void KEEL_CALL write_log(const keel_host *, keel_log_level level, const char *utf8) {
    if (utf8 == nullptr) return;
    static constexpr LogLevel levels[] = {LogLevel::trace, LogLevel::debug, LogLevel::info,
                                          LogLevel::warn, LogLevel::error};
    try {
        const auto to = levels[std::clamp<keel_log_level>(level, KEEL_LOG_TRACE, KEEL_LOG_ERROR)];
        if (log().should_log(to)) log().write(to, printable(utf8, 2000));
    } catch (...) {
        // if there is no memory for a log line, the line is lost, because no exception may reach a
        // plugin
    }
}

void KEEL_CALL store_error(const keel_host *, keel_status status, const char *utf8) {
    last_error.store(status, utf8);
}

void *KEEL_CALL allocate(const keel_host *, uint64_t size, uint64_t align) {
    if (!std::has_single_bit(align) || size > std::numeric_limits<size_t>::max() / 2 ||
        align > (uint64_t{1} << 30)) {
        return nullptr;
    }
    void *block = nullptr;
    const auto wanted = static_cast<size_t>(std::max<uint64_t>(size, 1));
    const auto aligned = static_cast<size_t>(std::max<uint64_t>(align, sizeof(void *)));
    return ::posix_memalign(&block, aligned, wanted) == 0 ? block : nullptr;
}

void KEEL_CALL release(const keel_host *, void *block) { std::free(block); }

// A keel_region_fn, and the first error of its workers. Lives while the region runs.
struct RegionCall {
    keel_region_fn fn;
    void *user;
    std::mutex mutex{};
    ErrorSlot error{}; // the first error that was set on a worker other than the calling thread
};

void KEEL_CALL region_barrier(const keel_region *region) {
    static_cast<const ThreadTeam::Region *>(region->core)->barrier();
}

void region_body(void *user, const ThreadTeam::Region &at) {
    auto &call = *static_cast<RegionCall *>(user);
    // the ABI passes a void*; the region is only read
    auto *core = const_cast<ThreadTeam::Region *>(&at);
    const keel_region region = {KEEL_HEADER(keel_region), at.worker(), at.size(), region_barrier,
                                core};
    if (at.worker() == 0) return call.fn(call.user, &region);
    last_error.set = false;
    call.fn(call.user, &region);
    if (!last_error.set) return;
    const std::lock_guard lock(call.mutex);
    if (!call.error.set) call.error = last_error;
}

} // namespace

HostServices::HostServices(uint32_t threads) : team_(threads) {
    table_.h = KEEL_HEADER(keel_host);
    table_.host_data = this;
    table_.log = write_log;
    table_.set_error = store_error;
    table_.alloc = allocate;
    table_.free = release;
    table_.worker_count = [](const keel_host *host) -> uint32_t { return self(host).team_.cpus(); };
    table_.parallel_region = run_region;
    table_.cancelled = [](const keel_host *host) -> int32_t {
        return self(host).cancelled() ? 1 : 0;
    };
    table_.get_extension = find_extension;
}

keel_status KEEL_CALL HostServices::run_region(const keel_host *host, uint32_t n, keel_region_fn fn,
                                               void *user) {
    if (fn == nullptr) {
        store_error(host, KEEL_E_INVALID_ARG, "parallel_region: the body is NULL");
        return KEEL_E_INVALID_ARG;
    }
    RegionCall call{fn, user};
    const ThreadTeam::Result result = self(host).team_.run(n, region_body, &call);
    if (call.error.set && !last_error.set) last_error = call.error;
    switch (result) {
    case ThreadTeam::Result::done: return KEEL_OK;
    case ThreadTeam::Result::nested:
        store_error(
            host, KEEL_E_INVALID_ARG,
            "parallel_region: expected no region to be active in this thread; regions cannot nest");
        return KEEL_E_INVALID_ARG;
    case ThreadTeam::Result::bad_size:
        store_error(host, KEEL_E_INVALID_ARG, "parallel_region: more than 256 workers");
        return KEEL_E_INVALID_ARG;
    case ThreadTeam::Result::no_threads: break;
    }
    store_error(host, KEEL_E_OUT_OF_MEMORY,
                "parallel_region: the system refused to start a thread");
    return KEEL_E_OUT_OF_MEMORY;
}

const void *KEEL_CALL HostServices::find_extension(const keel_host *host, const char *id) {
    if (id == nullptr) return nullptr;
    const auto &known = self(host).extensions_;
    const auto found = known.find(std::string_view(id));
    return found == known.end() ? nullptr : found->second;
}

std::optional<HostError> HostServices::take_error() {
    if (!std::exchange(last_error.set, false)) return std::nullopt;
    return HostError{last_error.status, printable(last_error.text, ErrorSlot::capacity)};
}

void HostServices::drop_error() noexcept { last_error.set = false; }

std::string status_name(keel_status status) {
    switch (status) {
    case KEEL_OK: return "KEEL_OK";
    case KEEL_E_UNSUPPORTED: return "KEEL_E_UNSUPPORTED";
    case KEEL_E_INVALID_ARG: return "KEEL_E_INVALID_ARG";
    case KEEL_E_OUT_OF_MEMORY: return "KEEL_E_OUT_OF_MEMORY";
    case KEEL_E_DEVICE_LOST: return "KEEL_E_DEVICE_LOST";
    case KEEL_E_CANCELLED: return "KEEL_E_CANCELLED";
    case KEEL_E_INTERNAL: return "KEEL_E_INTERNAL";
    case KEEL_E_VERSION: return "KEEL_E_VERSION";
    case KEEL_E_NOT_FOUND: return "KEEL_E_NOT_FOUND";
    case KEEL_E_NOT_READY: return "KEEL_E_NOT_READY";
    default: break;
    }
    return (status >= 0x10000 ? "plugin status " : "status ") + std::to_string(status);
}

std::string status_text(keel_status status) {
    switch (status) {
    case KEEL_OK: return "no error";
    case KEEL_E_UNSUPPORTED: return "not supported";
    case KEEL_E_INVALID_ARG: return "invalid argument";
    case KEEL_E_OUT_OF_MEMORY: return "out of memory";
    case KEEL_E_DEVICE_LOST: return "the device was lost";
    case KEEL_E_CANCELLED: return "cancelled";
    case KEEL_E_INTERNAL: return "an internal error";
    case KEEL_E_VERSION: return "the wrong ABI version";
    case KEEL_E_NOT_FOUND: return "not found";
    case KEEL_E_NOT_READY: return "not ready";
    default: return status_name(status);
    }
}

} // namespace keel
