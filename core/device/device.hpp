#pragma once

#include "base/error.hpp"
#include "device/buffer.hpp"
#include "device/stream.hpp"
#include "plugin/host.hpp"
#include "plugin/places.hpp"

#include <keel/backend.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace keel {

// What a Device is made of. The table is a copy that was adopted (its missing slots are NULL).
struct DeviceSpec {
    std::string plugin;            // the backend's id, for messages
    keel_backend table{};          //
    std::string selector = "auto"; // "auto", an index, part of a device's name or vendor, or its
                                   // type (case does not matter)
    std::vector<const keel_param *>
        params; // the plugin's table, checked and complete; copied from during creation
    std::shared_ptr<HostServices> host;
    std::shared_ptr<void> keep_alive; // the plugin's library and whatever `params` points into
    PluginPlaces places;              // where a config names the backend, for messages
    SourceLocation selector_at;       // and the selector
    std::function<const void *(const char *)>
        extension; // the plugin's, by name; empty: it has none
};

// Whether a device takes weights of a dtype, by its keel_ctx_info.weight_dtypes.
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

// The message that a plugin left on this thread, or an empty string; clears it.
std::string take_message();

// Hears of buffers just before the backend destroys them (not when they only go back to the pool).
class BufferWatch {
  public:
    virtual void before_destroy(const keel_buffer *buffer) noexcept = 0;
    virtual void before_destroy_other(const void *) noexcept {} // a plan or a weight

  protected:
    ~BufferWatch() = default;
};

// An opened device of a backend: context, stream, buffers. Not thread-safe. Lives as long as the
// last Buffer or Weight on it.
// It has many functions because buffers, extensions, memory pressure and errors of calls all meet
// here.
class Device : public std::enable_shared_from_this<Device> {
  public:
    static std::shared_ptr<Device> open(DeviceSpec spec);
    // The core's own reference backend.
    static std::shared_ptr<Device> open_reference(std::shared_ptr<HostServices> host);
    ~Device();
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    const std::string &plugin() const { return spec_.plugin; }
    const keel_backend &table() const { return spec_.table; }
    // What the backend serves under that name, or NULL; the caller adopts it.
    const void *extension(const char *id) const {
        return spec_.extension ? spec_.extension(id) : nullptr;
    }
    keel_ctx *ctx() const { return ctx_; }
    const keel_device_info &device_info() const { return device_info_; }
    // Defaults filled in: no member is zero but max_buffer_bytes and sync*.
    const keel_ctx_info &info() const { return info_; }
    keel_mem_info mem_info() const; // zeroes where unknown
    const std::shared_ptr<HostServices> &host() const { return spec_.host; }
    Stream &stream() { return stream_; }
    bool is_lost() const { return lost_; }

    // size bytes, not zeroed; from the pool where one fits. When memory is short the pool is
    // emptied and the backend asked again. HOST_VISIBLE becomes DEVICE where the backend has no
    // such kind. Only these two kinds.
    BufferPtr allocate(uint64_t size, keel_buffer_kind kind = KEEL_BUFFER_DEVICE);
    // The host's memory as a buffer; NULL if the backend does not import, or not this memory.
    // `host` outlives the buffer.
    BufferPtr import_host(void *host, uint64_t size);
    // Address space without memory behind it (see Buffer::commit); NULL where the backend has none.
    BufferPtr reserve(uint64_t size);
    Buffer *find(const keel_buffer *handle) const; // the live Buffer with that handle, or NULL
    void trim(); // gives the pool's free buffers back to the system
    const BufferPool::Stats &pool_stats() { return pool_.stats(); }
    // The watch is removed before it dies.
    void add_watch(BufferWatch *watch) { watches_.push_back(watch); }
    void remove_watch(BufferWatch *watch) noexcept { std::erase(watches_, watch); }
    // Said by whoever destroys a plan or a weight on this device, before.
    void before_destroy(const void *plan_or_weight) noexcept {
        for (BufferWatch *watch : watches_) watch->before_destroy_other(plan_or_weight);
    }

    // Runs a call that may answer KEEL_E_OUT_OF_MEMORY (and then has changed nothing): if so, once
    // more with the pool emptied.
    template <typename Call> keel_status with_memory(const Call &call) {
        HostServices::drop_error();
        const keel_status status = call();
        if (status != KEEL_E_OUT_OF_MEMORY || pool_.stats().held_bytes == 0) return status;
        trim();
        HostServices::drop_error();
        return call();
    }

    // Makes a call; if it fails, throws an Error that names plugin, what was called, and the
    // message that the plugin left in this call (one that an earlier call left is dropped).
    template <typename Call> void check(const char *what, const Call &call) {
        HostServices::drop_error();
        const keel_status status = call();
        if (status != KEEL_OK) fail(status, what);
    }
    // Throws if the device was lost: from then on it is only destroyed.
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
