#include "device/device.hpp"

#include "plugin/init_lock.hpp"
#include "reference/reference.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace keel {
namespace {

std::string lower(std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return out;
}

// Returns true if a device has the type `word`: "cpu", "gpu" (integrated or discrete), "integrated"
// or "discrete".
bool is_of_type(keel_device_type type, std::string_view word) {
    const bool integrated = type == KEEL_DEVICE_INTEGRATED, discrete = type == KEEL_DEVICE_DISCRETE;
    return (word == "cpu" && type == KEEL_DEVICE_CPU) ||
           (word == "gpu" && (integrated || discrete)) || (word == "integrated" && integrated) ||
           (word == "discrete" && discrete);
}

// Returns true if the name, vendor or type of a device matches `wanted`. `wanted` is in lower case.
bool fits(const keel_device_info &info, const std::string &wanted) {
    return lower(info.name).find(wanted) != std::string::npos ||
           lower(info.vendor).find(wanted) != std::string::npos || is_of_type(info.type, wanted);
}

bool is_power_of_two(uint32_t n) { return n != 0 && (n & (n - 1)) == 0; }

} // namespace

std::string take_message() {
    const std::optional<HostError> error = HostServices::take_error();
    return error ? error->message : std::string{};
}

std::shared_ptr<Device> Device::open(DeviceSpec spec) {
    std::shared_ptr<Device> device(new Device(std::move(spec)));
    const auto lock = lock_plugin_init();
    const uint32_t index = device->select();
    keel_ctx_desc desc = {KEEL_HEADER(keel_ctx_desc)};
    desc.device = index;
    desc.n_params = static_cast<uint32_t>(device->spec_.params.size());
    desc.params = device->spec_.params.data();
    HostServices::drop_error();
    const keel_status status =
        device->table().ctx_create(device->host()->table(), &desc, &device->ctx_);
    if (status == KEEL_OK && device->ctx_ == nullptr)
        device->fail(KEEL_E_INTERNAL, "ctx_create reported success, but returned no context");
    if (status != KEEL_OK) {
        device->ctx_ = nullptr;
        device->fail(status,
                     fmt::format("opening device {} '{}'", index, device->device_info_.name));
    }
    device->read_info();
    device->stream_.set_strategy({});
    return device;
}

std::shared_ptr<Device> Device::open_reference(std::shared_ptr<HostServices> host) {
    DeviceSpec spec;
    spec.plugin = reference_plugin()->id;
    spec.table = *reference_backend();
    spec.host = std::move(host);
    return open(std::move(spec));
}

Device::~Device() {
    if (ctx_ == nullptr) return;
    stream_.set_trace(nullptr);
    trim();
    table().ctx_destroy(ctx_);
}

// Returns the index of the device that the selector selects. Sets device_info_.
uint32_t Device::select() {
    uint32_t count = 0;
    check("device_count", [&] { return table().device_count(host()->table(), &count); });
    if (count == 0) {
        const std::string why = take_message(); // the backend can have left the reason
        throw_error(ErrorKind::resource, "{}backend {} finds no device on this machine{}",
                    PluginPlaces::prefix(spec_.places.plugin), plugin(),
                    why.empty() ? "; is the device's driver installed?" : ": " + why);
    }
    uint32_t wanted = 0;
    const char *begin = spec_.selector.data(), *end = begin + spec_.selector.size();
    const bool any = spec_.selector.empty() || spec_.selector == "auto";
    const auto [stop, problem] = std::from_chars(begin, end, wanted);
    const bool by_index = !any && stop == end && problem != std::errc::invalid_argument;
    if (by_index && (problem != std::errc{} || wanted >= count)) {
        refuse_selector(
            fmt::format("has {} device(s), but no device {}; `keel plugins show {}` lists them",
                        count, spec_.selector, plugin()));
    }
    std::string names;
    for (uint32_t i = 0; i < count; ++i) {
        if (by_index && i != wanted) continue;
        keel_device_info info = {KEEL_HEADER(keel_device_info)};
        check("device_info", [&] { return table().device_info(host()->table(), i, &info); });
        info.name[sizeof info.name - 1] = info.vendor[sizeof info.vendor - 1] =
            info.driver[sizeof info.driver - 1] = 0;
        if (any || by_index || fits(info, lower(spec_.selector))) {
            device_info_ = info;
            return i;
        }
        names += fmt::format("{}'{}'", names.empty() ? "" : ", ", info.name);
    }
    refuse_selector(
        fmt::format("has no device whose name, vendor or type is '{}'; the devices are {}",
                    spec_.selector, names));
}

void Device::refuse_selector(const std::string &why) const {
    throw_error(ErrorKind::input, "{}backend {} {}", PluginPlaces::prefix(spec_.selector_at),
                plugin(), why);
}

void Device::read_info() {
    info_ = {KEEL_HEADER(keel_ctx_info)};
    if (table().ctx_info != nullptr)
        check("ctx_info", [&] { return table().ctx_info(ctx_, &info_); });
    info_.description[sizeof info_.description - 1] = 0;
    if (info_.activation_dtype == KEEL_DTYPE_NONE) info_.activation_dtype = KEEL_DTYPE_F32;
    if (info_.kv_block_slots == 0) info_.kv_block_slots = 64;
    if (info_.prefill_chunk == 0) info_.prefill_chunk = 512;
    if (info_.buffer_align == 0) info_.buffer_align = 64;
    const auto require = [&](bool fits, const char *what, uint32_t found, const char *expected) {
        if (fits) return;
        throw_error(ErrorKind::plugin, "{}backend {}: found {} {}, expected {}; {}",
                    PluginPlaces::prefix(spec_.places.plugin), plugin(), what, found, expected,
                    "this is a fault of the plugin: report it to its author");
    };
    require(info_.activation_dtype <= KEEL_DTYPE_BF16, "activation dtype", info_.activation_dtype,
            "f32, f16 or bf16");
    require(is_power_of_two(info_.kv_block_slots) && info_.kv_block_slots <= 4096, "kv_block_slots",
            info_.kv_block_slots, "a power of two up to 4096");
    require(info_.prefill_chunk <= 65536, "prefill_chunk", info_.prefill_chunk, "1 to 65536");
    require(info_.buffer_align >= 64 && is_power_of_two(info_.buffer_align), "buffer_align",
            info_.buffer_align, "a power of two from 64");
}

keel_mem_info Device::mem_info() const {
    keel_mem_info info = {KEEL_HEADER(keel_mem_info)};
    if (lost_ || table().mem_info == nullptr) return info;
    if (table().mem_info(ctx_, &info) != KEEL_OK) {
        take_message();
        info = {KEEL_HEADER(keel_mem_info)};
    }
    return info;
}

BufferPtr Device::create(uint64_t size, keel_buffer_kind kind, void *host, keel_status *status) {
    keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc)};
    desc.size = size;
    desc.kind = kind;
    desc.host = host;
    require_alive("buffer_create");
    keel_buffer *handle = nullptr;
    *status = with_memory([&] { return table().buffer_create(ctx_, &desc, &handle); });
    if (*status != KEEL_OK) return nullptr;
    if (handle == nullptr)
        fail(KEEL_E_INTERNAL, "buffer_create reported success, but returned no buffer");
    ++pool_.stats().created;
    return adopt(handle, size, kind);
}

BufferPtr Device::adopt(keel_buffer *handle, uint64_t size, keel_buffer_kind kind) {
    try {
        return std::make_shared<Buffer>(shared_from_this(), handle, size, kind);
    } catch (...) { // the host has no memory left
        destroy(handle);
        throw;
    }
}

BufferPtr Device::allocate(uint64_t size, keel_buffer_kind kind) {
    if (kind != KEEL_BUFFER_DEVICE && kind != KEEL_BUFFER_HOST_VISIBLE)
        throw_error(ErrorKind::internal,
                    "allocate() expects the kind DEVICE or HOST_VISIBLE, found kind {}", kind);
    size = std::max<uint64_t>(size, 1);
    if (info_.max_buffer_bytes != 0 && size > info_.max_buffer_bytes) {
        throw_error(
            ErrorKind::resource,
            "backend {}: a buffer of {} bytes is too large; device '{}' allows at most {} bytes",
            plugin(), size, device_info_.name, info_.max_buffer_bytes);
    }
    uint64_t actual = size;
    if (keel_buffer *reused = pool_.take(size, kind, &actual)) {
        return adopt(reused, actual, kind);
    }
    keel_status status = KEEL_OK;
    BufferPtr buffer = create(size, kind, nullptr, &status);
    if (status == KEEL_E_UNSUPPORTED && kind == KEEL_BUFFER_HOST_VISIBLE) {
        take_message();
        return allocate(size, KEEL_BUFFER_DEVICE);
    }
    if (status != KEEL_OK) fail(status, fmt::format("a buffer of {} bytes", size));
    return buffer;
}

BufferPtr Device::import_host(void *memory, uint64_t size) {
    keel_status status = KEEL_OK;
    if ((device_info_.flags & KEEL_DEVICE_IMPORTS_HOST) == 0) return nullptr;
    BufferPtr buffer = create(size, KEEL_BUFFER_IMPORT, memory, &status);
    // KEEL_E_INVALID_ARG: the driver cannot import this kind of memory, for example memory that
    // another driver has mapped.
    if (buffer == nullptr && status != KEEL_E_UNSUPPORTED && status != KEEL_E_INVALID_ARG)
        fail(status, fmt::format("importing {} bytes of host memory", size));
    if (buffer == nullptr) take_message();
    return buffer;
}

BufferPtr Device::reserve(uint64_t size) {
    if (table().buffer_commit == nullptr) return nullptr;
    keel_status status = KEEL_OK;
    BufferPtr buffer = create(size, KEEL_BUFFER_RESERVE, nullptr, &status);
    if (buffer == nullptr && status != KEEL_E_UNSUPPORTED)
        fail(status, fmt::format("reserving {} bytes of address space", size));
    if (buffer == nullptr) take_message();
    return buffer;
}

Buffer *Device::find(const keel_buffer *handle) const {
    const auto found = live_.find(handle);
    return found == live_.end() ? nullptr : found->second;
}

void Device::trim() {
    pool_.drain([this](keel_buffer *buffer) { destroy(buffer); });
}

void Device::destroy(keel_buffer *handle) noexcept {
    for (BufferWatch *watch : watches_) watch->before_destroy(handle);
    table().buffer_destroy(ctx_, handle);
}

void Device::give_back(keel_buffer *handle, uint64_t size, keel_buffer_kind kind) noexcept {
    if (!lost_ && (kind == KEEL_BUFFER_DEVICE || kind == KEEL_BUFFER_HOST_VISIBLE)) {
        try {
            return pool_.put(handle, size, kind);
        } catch (...) { // no host memory for the pool's entry
        }
    }
    destroy(handle);
}

void Device::require_alive(const char *what) const {
    if (lost_)
        throw_error(ErrorKind::runtime, "backend {}: {}: the device was lost in an earlier call",
                    plugin(), what);
}

void Device::fail(keel_status status, const std::string &what) {
    if (status == KEEL_E_DEVICE_LOST) lost_ = true;
    const std::string message = take_message();
    const ErrorKind kind =
        status == KEEL_E_OUT_OF_MEMORY ? ErrorKind::resource
        : status == KEEL_E_INVALID_ARG || status == KEEL_E_UNSUPPORTED || status == KEEL_E_NOT_FOUND
            ? ErrorKind::plugin
            : ErrorKind::runtime;
    throw_error(kind, "{}backend {}: {}: {}{}{}", spec_.places.prefix(message), plugin(), what,
                status_text(status), message.empty() ? "" : ": ", message);
}

} // namespace keel
