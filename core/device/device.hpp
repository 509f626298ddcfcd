#pragma once

#include "base/error.hpp"
#include "device/buffer.hpp"
#include "device/stream.hpp"
#include "plugin/host.hpp"
#include "plugin/places.hpp"

#include <keel/backend.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace keel {

// The parts from which a Device is made. The table is a copy that keel_adopt() made (abi.h).
// Functions that the plugin does not have are NULL.
struct DeviceSpec {
    std::string plugin;   // the backend's id, for messages
    keel_backend table{}; //
    // "auto", an index, part of a device's name or vendor, or a type; case does not matter
    std::string selector = "auto";
    // values for the plugin's table of parameters, checked and complete; the plugin copies them at
    // creation
    std::vector<const keel_param *> params;
    std::shared_ptr<HostServices> host;
    // the plugin's library, and the memory that `params` points to
    std::shared_ptr<void> keep_alive;
    PluginPlaces places;        // where the config names the backend, for messages
    SourceLocation selector_at; // where the config has the selector
    // the plugin's function that finds an extension by name; empty if the plugin has none
    std::function<const void *(const char *)> extension;
};

// Returns true if a device takes weights of a dtype. `weight_dtypes` is from its keel_ctx_info.
constexpr bool takes_weights_of(uint64_t weight_dtypes, keel_dtype dtype) {
    switch (dtype) {
    case KEEL_DTYPE_F32:
    case KEEL_DTYPE_F16:
    case KEEL_DTYPE_BF16:
    case KEEL_DTYPE_Q8_0:
    case KEEL_DTYPE_Q4_0: return true;
    default: return dtype < 64 && (weight_dtypes >> dtype & 1) != 0;
    }
}

// Returns the message that a plugin left on this thread, and clears it. Empty if there is none.
std::string take_message();

// An observer. It is notified before the backend destroys a buffer, but not when a buffer returns
// to the pool.
class BufferWatch {
  public:
    virtual void before_destroy(const keel_buffer *buffer) noexcept = 0;
    // the argument is a plan or a weight
    virtual void before_destroy_other(const void *) noexcept {}

  protected:
    ~BufferWatch() = default;
};

// An opened device of a backend: context, stream, buffers. Not thread-safe. Each Buffer and Weight
// on it keeps it alive.
// The class has many functions because buffers, extensions, memory pressure and errors of calls
// depend on each other.
class Device : public std::enable_shared_from_this<Device> {
  public:
    static std::shared_ptr<Device> open(DeviceSpec spec);
    // Opens the core's own reference backend.
    static std::shared_ptr<Device> open_reference(std::shared_ptr<HostServices> host);
    ~Device();
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    const std::string &plugin() const { return spec_.plugin; }
    const keel_backend &table() const { return spec_.table; }
    // Returns the table of the backend's extension `id`, or NULL. The caller must adopt the table
    // (check its version and copy it) before use.
    const void *extension(const char *id) const {
        return spec_.extension ? spec_.extension(id) : nullptr;
    }
    keel_ctx *ctx() const { return ctx_; }
    const keel_device_info &device_info() const { return device_info_; }
    // The context's info. Members that the backend left at 0 have their defaults. Only
    // max_buffer_bytes, sync and sync_ops can still be 0.
    const keel_ctx_info &info() const { return info_; }
    // Lowers info().prefill_chunk to at most `tokens`. Call it before a graph is planned.
    void limit_prefill_chunk(uint32_t tokens) {
        info_.prefill_chunk = std::min(info_.prefill_chunk, std::max<uint32_t>(tokens, 1));
    }
    keel_mem_info mem_info() const; // unknown members are 0
    const std::shared_ptr<HostServices> &host() const { return spec_.host; }
    Stream &stream() { return stream_; }
    bool is_lost() const { return lost_; }

    // Allocates `size` bytes, not zeroed. Takes a buffer from the pool if one fits. If memory is
    // short, empties the pool and asks the backend again. `kind` is DEVICE or HOST_VISIBLE. If the
    // backend has no HOST_VISIBLE buffers, the buffer is a DEVICE buffer.
    BufferPtr allocate(uint64_t size, keel_buffer_kind kind = KEEL_BUFFER_DEVICE);
    // Makes a buffer from memory of the host. Returns NULL if the backend cannot import this
    // memory, or any memory. `host` must outlive the buffer.
    BufferPtr import_host(void *host, uint64_t size);
    // Reserves address space without memory (see Buffer::commit). Returns NULL if the backend
    // cannot do this.
    BufferPtr reserve(uint64_t size);
    Buffer *find(const keel_buffer *handle) const; // the live Buffer with this handle, or NULL
    void trim();                                   // returns the pool's free buffers to the system
    const BufferPool::Stats &pool_stats() { return pool_.stats(); }
    // Call remove_watch() before the watch is destroyed.
    void add_watch(BufferWatch *watch) { watches_.push_back(watch); }
    void remove_watch(BufferWatch *watch) noexcept { std::erase(watches_, watch); }
    // Call it before a plan or a weight of this device is destroyed.
    void before_destroy(const void *plan_or_weight) noexcept {
        for (BufferWatch *watch : watches_) watch->before_destroy_other(plan_or_weight);
    }

    // Makes a call that changes nothing if it returns KEEL_E_OUT_OF_MEMORY. After this status,
    // empties the pool and makes the call once more.
    template <typename Call> keel_status with_memory(const Call &call) {
        HostServices::drop_error();
        const keel_status status = call();
        if (status != KEEL_E_OUT_OF_MEMORY || pool_.stats().held_bytes == 0) return status;
        trim();
        HostServices::drop_error();
        return call();
    }

    // Makes a call. If the call fails, throws an Error that names the plugin and the call. The
    // Error also has the plugin's message about this call. A message from an earlier call is
    // dropped first.
    template <typename Call> void check(const char *what, const Call &call) {
        HostServices::drop_error();
        const keel_status status = call();
        if (status != KEEL_OK) fail(status, what);
    }
    // Throws if the device was lost. A lost device cannot be used again; it can only be destroyed.
    void require_alive(const char *what) const;
    [[noreturn]] void fail(keel_status status, const std::string &what);

  private:
    friend class Buffer;
    explicit Device(DeviceSpec spec) : spec_(std::move(spec)), stream_(*this) {}
    uint32_t select();
    void read_info();
    [[noreturn]] void refuse_selector(const std::string &why) const;
    BufferPtr adopt(keel_buffer *, uint64_t size, keel_buffer_kind kind);
    BufferPtr create(uint64_t size, keel_buffer_kind kind, void *host, keel_status *status);
    void give_back(keel_buffer *, uint64_t size, keel_buffer_kind kind) noexcept;
    void destroy(keel_buffer *) noexcept;

    DeviceSpec spec_;
    keel_ctx *ctx_ = nullptr;
    keel_device_info device_info_{};
    keel_ctx_info info_{};
    Stream stream_;
    BufferPool pool_;
    std::unordered_map<const keel_buffer *, Buffer *> live_;
    std::vector<BufferWatch *> watches_;
    bool lost_ = false;
};

} // namespace keel
