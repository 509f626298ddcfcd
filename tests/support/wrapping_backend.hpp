#pragma once

#include "device/device.hpp"
#include "ops/op_table.hpp"
#include "plugin/host.hpp"

#include <keel/backend.h>
#include <keel/ext/draft/read_later.h>
#include <keel/ext/draft/replay.h>
#include <keel/ext/draft/stream_counts.h>
#include <keel/ext/draft/timestamps.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace keel::test {

// A backend that wraps another: it counts and records calls, hides slots, refuses ops, delays work
// like a GPU does, and fails on demand. Set it up, then open() a device. It must outlive what was
// opened; every device has this object's own host.
class WrappingBackend {
  public:
    struct Call {
        std::string slot;    // "matmul", "buffer_write"
        uint64_t ticket = 0; // flush and wait
        uint64_t bytes = 0;  // buffer_create, buffer_write, buffer_read
    };
    struct Live {
        int64_t contexts = 0, buffers = 0, weights = 0, plans = 0, recordings = 0, reads = 0;
        bool none() const {
            return contexts == 0 && buffers == 0 && weights == 0 && plans == 0 && recordings == 0 &&
                   reads == 0;
        }
    };
    using Refuse = std::function<bool(keel_op, const keel_op_args *)>;

    explicit WrappingBackend(const keel_backend *inner = nullptr); // NULL: the reference
    ~WrappingBackend();
    WrappingBackend(const WrappingBackend &) = delete;
    WrappingBackend &operator=(const WrappingBackend &) = delete;

    // ---- set-up, before open() ----
    void hide(const std::string &slot); // an optional slot of the table becomes NULL; throws if
                                        // there is no such slot
    void hide_all_but(const std::vector<std::string> &slots); // the required ten always stay
    std::vector<std::string> devices;               // names; empty: the inner backend's one device
    std::optional<uint32_t> device_count;           // what device_count() says
    std::optional<uint32_t> device_flags;           // keel_device_flags_e instead of the inner's
    std::optional<keel_device_type> device_type;    // instead of the inner's
    std::optional<keel_mem_info> memory;            // what mem_info() says
    uint32_t prefill_chunk = 0, kv_block_slots = 0; // what ctx_info says; 0: as the inner does
    bool has_host_visible = true;                   // false: no buffers that the host sees
    uint64_t import_unit = 1;                       // imports only memory of a multiple of it
    keel_sync sync = KEEL_SYNC_LAZY;                // what ctx_info asks for
    uint32_t sync_ops = 0;
    // Ops, writes and commits only run when a read or a wait for their ticket makes them.
    bool asynchronous = false;
    bool poison_buffers = true; // new memory is all NaN (bytes 0xff)
    bool records_steps = false; // serves keel.replay/1
    bool tells_times = false;   // serves keel.timestamps/1
    bool reads_later = false;   // serves keel.read_later/1
    bool tells_counts =
        false; // serves keel.stream_counts/1, with what own_submits and own_waits are

    // ---- at any time ----
    Refuse refuse_plan, refuse_call;        // KEEL_E_UNSUPPORTED where true
    uint64_t max_buffer_bytes = UINT64_MAX; // larger ones: out of memory
    uint64_t memory_limit = UINT64_MAX;     // all buffers together
    // The n-th call from now (1: the next) of `slot`, or of any slot that returns a status, fails
    // without a side effect. After KEEL_E_DEVICE_LOST every such call fails with it.
    void fail_nth(uint64_t n, keel_status status, const std::string &slot = "");
    void clear_fault() { fault_ = {}; }
    bool fault_fired() const { return fault_.fired; }
    const std::string &fault_slot() const { return fault_.where; }  // the slot that failed
    uint64_t calls_after_loss() const { return calls_after_loss_; } // that are not destroy calls

    DeviceSpec spec(const std::string &selector = "auto");
    std::shared_ptr<Device> open(const std::string &selector = "auto") {
        return Device::open(spec(selector));
    }
    const std::shared_ptr<HostServices> &host() const { return host_; }

    const std::vector<Call> &calls() const { return calls_; }
    uint64_t count(const std::string &slot) const;
    uint64_t ops() const; // calls of op slots
    void clear_calls() { calls_.clear(); }
    Live live() const { return live_; }
    // Calls against the rules of keel.replay/1: a recording that names what is gone, a read or a
    // write while one is made.
    uint64_t misuses() const { return misuses_; }
    uint64_t own_submits = 0, own_waits = 0;
    uint64_t untimed_op = 0; // keel.timestamps/1 leaves this one out

    static const std::vector<std::string> &op_slots(); // in the table's order

  private:
    struct Slots; // the table's functions
    struct Context;
    struct Recording;
    void time_op(Context &c);
    struct Fault {
        uint64_t left = 0; // 0: none
        keel_status status = KEEL_OK;
        std::string slot, where;
        bool fired = false;
    };
    // The status to return at once, or KEEL_OK to go on.
    keel_status enter(const char *slot, uint64_t ticket = 0, uint64_t bytes = 0);

    const keel_backend *inner_;
    keel_backend table_{};
    std::shared_ptr<HostServices> host_;
    std::vector<Call> calls_;
    Live live_;
    Fault fault_;
    bool lost_ = false;
    uint64_t calls_after_loss_ = 0, bytes_ = 0;
    std::map<const keel_buffer *, uint64_t> sizes_;
    std::set<const void *> alive_; // buffers, weights, plans
    uint64_t misuses_ = 0, timed_ = 0;
    bool times_ops_ = false;
};

} // namespace keel::test
