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

// A backend that wraps another backend. It counts and records calls, hides functions, refuses ops,
// delays work like a GPU, and fails on demand. Set it up first, then open() a device. It must exist
// longer than the opened devices. All devices use the host of this object.
class WrappingBackend {
  public:
    struct Call {
        std::string slot;    // for example "matmul" or "buffer_write"
        uint64_t ticket = 0; // for flush and wait
        uint64_t bytes = 0;  // for buffer_create, buffer_write and buffer_read
    };
    struct Live {
        int64_t contexts = 0, buffers = 0, weights = 0, plans = 0, recordings = 0, reads = 0;
        bool none() const {
            return contexts == 0 && buffers == 0 && weights == 0 && plans == 0 && recordings == 0 &&
                   reads == 0;
        }
    };
    using Refuse = std::function<bool(keel_op, const keel_op_args *)>;

    explicit WrappingBackend(const keel_backend *inner = nullptr); // NULL: the reference backend
    ~WrappingBackend();
    WrappingBackend(const WrappingBackend &) = delete;
    WrappingBackend &operator=(const WrappingBackend &) = delete;

    // ---- set-up, to be called before open() ----
    // makes an optional function of the table NULL; throws if there is no such function
    void hide(const std::string &slot);
    // the ten required functions always stay
    void hide_all_but(const std::vector<std::string> &slots);
    // names of devices; empty: the only device of the wrapped backend
    std::vector<std::string> devices;
    std::optional<uint32_t> device_count; // result of device_count()
    // keel_device_flags_e that replace the flags of the wrapped backend
    std::optional<uint32_t> device_flags;
    std::optional<keel_device_type> device_type; // replaces the type of the wrapped backend
    std::optional<keel_mem_info> memory;         // result of mem_info()
    // values in ctx_info; 0: those of the wrapped backend
    uint32_t prefill_chunk = 0, kv_block_slots = 0;
    bool has_host_visible = true;    // false: there are no HOST_VISIBLE buffers
    uint64_t import_unit = 1;        // imported memory must be a multiple of this size
    keel_sync sync = KEEL_SYNC_LAZY; // sync strategy that ctx_info requests
    uint32_t sync_ops = 0;
    // True: ops, writes and commits run only when a read or a wait needs them.
    bool asynchronous = false;
    bool poison_buffers = true; // true: new memory is NaN (bytes 0xff)
    bool records_steps = false; // true: the backend has keel.replay/1
    bool tells_times = false;   // true: the backend has keel.timestamps/1
    bool reads_later = false;   // true: the backend has keel.read_later/1
    bool tells_counts =
        // true: the backend has keel.stream_counts/1, which reports own_submits and own_waits
        false;

    // ---- may be called at any time ----
    // if they return true, the plan or call returns KEEL_E_UNSUPPORTED
    Refuse refuse_plan, refuse_call;
    uint64_t max_buffer_bytes = UINT64_MAX; // for larger buffers there is no memory
    uint64_t memory_limit = UINT64_MAX;     // limit of all buffers together
    // Makes the n-th call from now on (1: the next call) of function `slot` fail without a side
    // effect. If `slot` is "", all functions that return a status count. After KEEL_E_DEVICE_LOST,
    // every such call fails with this status.
    void fail_nth(uint64_t n, keel_status status, const std::string &slot = "");
    void clear_fault() { fault_ = {}; }
    bool fault_fired() const { return fault_.fired; }
    const std::string &fault_slot() const { return fault_.where; } // the function that failed
    // number of calls after the loss, without destroy calls
    uint64_t calls_after_loss() const { return calls_after_loss_; }

    DeviceSpec spec(const std::string &selector = "auto");
    std::shared_ptr<Device> open(const std::string &selector = "auto") {
        return Device::open(spec(selector));
    }
    const std::shared_ptr<HostServices> &host() const { return host_; }

    const std::vector<Call> &calls() const { return calls_; }
    uint64_t count(const std::string &slot) const;
    uint64_t ops() const; // number of calls of ops
    void clear_calls() { calls_.clear(); }
    Live live() const { return live_; }
    // Number of calls that break the rules of keel.replay/1: a recording that uses freed objects,
    // or a read or a write during recording.
    uint64_t misuses() const { return misuses_; }
    uint64_t own_submits = 0, own_waits = 0;
    uint64_t untimed_op = 0; // keel.timestamps/1 leaves out this op

    static const std::vector<std::string> &op_slots(); // in the order of the table

  private:
    struct Slots; // the functions of the table
    struct Context;
    struct Recording;
    void time_op(Context &c);
    struct Fault {
        uint64_t left = 0; // calls that are left until the fault; 0: none
        keel_status status = KEEL_OK;
        std::string slot, where;
        bool fired = false;
    };
    // Returns KEEL_OK if the call should run, otherwise the status that it must return immediately.
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
    std::set<const void *> alive_; // buffers, weights and plans that exist
    uint64_t misuses_ = 0, timed_ = 0;
    bool times_ops_ = false;
};

} // namespace keel::test
