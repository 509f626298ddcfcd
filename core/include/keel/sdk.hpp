// Optional C++17 helpers for plugin authors; header-only, with standard headers only. You could
// write all of it yourself against the C headers. It keeps exceptions inside the plugin and saves
// repeated lookups.
//
//   // You define the opaque types.
//   struct keel_ctx { const keel_host *host; ... };
//   // slot<> needs it to report errors.
//   const keel_host *host_of(const keel_ctx *ctx) { return ctx->host; }
//   keel_status matmul(keel_ctx *ctx, const keel_matmul_args *args) {
//       ... throw keel::sdk::Failure(...); ...
//   }
//   table.matmul = keel::sdk::slot<matmul>;
#ifndef KEEL_SDK_HPP
#define KEEL_SDK_HPP

#include "allocator.h"
#include "backend.h"
#include "plugin.h"
#include "policy.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace keel::sdk {

// ---- errors ------------------------------------------------------------------------------------

// An exception that becomes a status. Throw it anywhere inside a slot's function. It contains its
// text, so throwing KEEL_E_OUT_OF_MEMORY needs no memory.
class Failure : public std::exception {
  public:
    Failure(keel_status status, const char *text) noexcept : status_(status) {
        std::snprintf(text_, sizeof text_, "%s", text);
    }
    // Failure(KEEL_E_INVALID_ARG, "x has %d columns, w has %d", a, b), as printf does.
    template <typename... Args>
    Failure(keel_status status, const char *format, Args... args) noexcept : status_(status) {
        std::snprintf(text_, sizeof text_, format, args...);
    }
    keel_status status() const noexcept { return status_; }
    const char *what() const noexcept override { return text_; }

  private:
    keel_status status_;
    char text_[252];
};

// What went wrong, kept without allocation.
struct Outcome {
    keel_status status = KEEL_OK;
    char text[252] = {};

    // To be called inside a catch block.
    void take_current_exception() noexcept {
        try {
            throw;
        } catch (const Failure &failure) {
            set(failure.status(), failure.what());
        } catch (const std::bad_alloc &) {
            set(KEEL_E_OUT_OF_MEMORY, "out of memory");
        } catch (const std::exception &error) {
            set(KEEL_E_INTERNAL, error.what());
        } catch (...) {
            set(KEEL_E_INTERNAL, "an exception that is no std::exception");
        }
    }
    void set(keel_status why, const char *message) noexcept {
        status = why;
        std::snprintf(text, sizeof text, "%s", message);
    }
    // Hands the message to the host, if there is one, and returns the status.
    keel_status report(const keel_host *host) const noexcept {
        if (status != KEEL_OK && host != nullptr) host->set_error(host, status, text);
        return status;
    }
};

// Runs `body`, which returns a keel_status or nothing; an exception becomes a status and a message.
template <typename Body>
keel_status guard(const keel_host *host, Body &&body) noexcept {
    try {
        if constexpr (std::is_void_v<decltype(body())>) {
            body();
            return KEEL_OK;
        } else {
            return body();
        }
    } catch (...) {
        Outcome outcome;
        outcome.take_current_exception();
        return outcome.report(host);
    }
}

// The host of a slot's first argument. Add overloads for your own keel_ctx, keel_policy_state, ...
// in the global namespace, declared before the first slot<>; without one, errors keep their status
// and lose their text.
inline const keel_host *host_of(const keel_host *host) noexcept {
    return host;
}
inline const keel_host *host_of(const volatile void *) noexcept {
    return nullptr;
}

template <auto Function, typename Type = decltype(Function)>
struct Slot;

template <auto Function, typename Result, typename First, typename... Rest>
struct Slot<Function, Result (*)(First, Rest...)> {
    static Result KEEL_CALL call(First first, Rest... rest) noexcept {
        if constexpr (std::is_same_v<Result, keel_status>) {
            return guard(host_of(first), [&] { return Function(first, rest...); });
        } else if constexpr (std::is_void_v<Result>) {
            guard(nullptr, [&] { Function(first, rest...); });
        } else {
            static_assert(std::is_pointer_v<Result>,
                          "a slot returns a keel_status, nothing, or a pointer");
            Result result = nullptr;
            guard(nullptr, [&] { result = Function(first, rest...); });
            return result;
        }
    }
};

template <auto Function, typename Result, typename First, typename... Rest>
struct Slot<Function, Result (*)(First, Rest...) noexcept> {
    static Result KEEL_CALL call(First first, Rest... rest) noexcept {
        return Function(first, rest...);
    }
};

// slot<function>: a pointer for a table. It wraps a C++ function that may throw in a C function
// that does not. It also works for the body of keel_plugin_query_v0: an exception there gives NULL,
// which means "cannot serve".
template <auto Function>
inline constexpr auto slot = &Slot<Function>::call;

// ---- parameters --------------------------------------------------------------------------------

// The parameters that a create call receives, by key. The core passes the whole table, so an
// unknown key is an error in the plugin: KEEL_E_INTERNAL.
class Params {
  public:
    Params(const keel_param *const *params, uint32_t n) noexcept : params_(params), n_(n) {}

    int64_t integer(const char *key) const { return at(key).i; }
    bool flag(const char *key) const { return at(key).i != 0; }
    double number(const char *key) const { return at(key).f; }
    const char *text(const char *key) const {
        return at(key).s;
    } // the core's: valid during the call
    bool is(const char *key, const char *word) const { return keel_same(at(key).s, word) != 0; }
    bool given(const char *key) const { return at(key).is_default == 0; }

  private:
    const keel_param &at(const char *key) const {
        for (uint32_t i = 0; i < n_; ++i)
            if (keel_same(params_[i]->key, key) != 0) return *params_[i];
        throw Failure(KEEL_E_INTERNAL, "parameter '%s' is not in the plugin's table", key);
    }
    const keel_param *const *params_;
    uint32_t n_;
};

// ---- memory ------------------------------------------------------------------------------------

// n elements from the host's allocator, not initialized, freed at the end of the scope. Throws
// Failure.
template <typename T>
class HostArray {
    static_assert(std::is_trivial_v<T>, "for plain data");

  public:
    HostArray() = default;
    HostArray(const keel_host *host, uint64_t n, uint64_t align = 64)
        : memory_(nullptr, Free{host}), size_(n) {
        void *block =
            n > UINT64_MAX / sizeof(T) ? nullptr : host->alloc(host, n * sizeof(T), align);
        if (block == nullptr) {
            throw Failure(KEEL_E_OUT_OF_MEMORY,
                          "the host has no room for %llu elements of %zu bytes",
                          static_cast<unsigned long long>(n), sizeof(T));
        }
        memory_.reset(static_cast<T *>(block));
    }
    T *data() noexcept { return memory_.get(); }
    const T *data() const noexcept { return memory_.get(); }
    uint64_t size() const noexcept { return size_; }
    T &operator[](uint64_t i) noexcept { return memory_.get()[i]; }
    const T &operator[](uint64_t i) const noexcept { return memory_.get()[i]; }

  private:
    struct Free {
        const keel_host *host = nullptr;
        void operator()(T *block) const noexcept { host->free(host, block); }
    };
    std::unique_ptr<T, Free> memory_;
    uint64_t size_ = 0;
};

// ---- tensors -----------------------------------------------------------------------------------

// A tensor of plain elements in memory that the plugin can reach. `base` is where the tensor's
// buffer begins; T is the element's type (const for inputs). The innermost dimension is contiguous,
// outer ones have byte strides.
template <typename T>
class View {
    using Byte = std::conditional_t<std::is_const_v<T>, const unsigned char, unsigned char>;
    using Void = std::conditional_t<std::is_const_v<T>, const void, void>;

  public:
    View(const keel_tensor &tensor, Void *base) noexcept
        : tensor_(&tensor), start_(static_cast<Byte *>(base) + tensor.offset) {}

    uint32_t rank() const noexcept { return tensor_->rank; }
    int64_t size(uint32_t dimension) const noexcept { return tensor_->shape[dimension]; }
    int64_t inner() const noexcept { return tensor_->shape[tensor_->rank - 1]; }
    // Rows: all outer dimensions as one, first the outermost.
    int64_t rows() const noexcept {
        int64_t n = 1;
        for (uint32_t d = 0; d + 1 < tensor_->rank; ++d)
            n *= tensor_->shape[d];
        return n;
    }
    T *row(int64_t index) const noexcept {
        Byte *at = start_;
        for (uint32_t d = tensor_->rank - 1; d-- > 0;) {
            at += index % tensor_->shape[d] * tensor_->stride[d];
            index /= tensor_->shape[d];
        }
        return reinterpret_cast<T *>(at);
    }

  private:
    const keel_tensor *tensor_;
    Byte *start_;
};

// ---- threads -----------------------------------------------------------------------------------

// Calls fn(begin, end) on the host's workers so that [0, n) is covered once, in pieces of at least
// `grain`. What fn throws becomes the status, with the first message. Not inside another region.
template <typename Fn>
keel_status parallel_for(const keel_host *host, int64_t n, int64_t grain, const Fn &fn) noexcept {
    if (n <= 0) return KEEL_OK;
    const int64_t pieces = std::max<int64_t>(1, n / std::max<int64_t>(1, grain));
    const auto workers =
        static_cast<uint32_t>(std::min<int64_t>({host->worker_count(host), pieces, 256}));
    if (workers <= 1) return guard(host, [&] { fn(int64_t{0}, n); });
    struct Call {
        const Fn *fn;
        int64_t n;
        std::atomic<bool> failed{false};
        Outcome outcome{};
    } call{&fn, n};
    const keel_region_fn body = [](void *user, const keel_region *region) {
        auto &shared = *static_cast<Call *>(user);
        const int64_t share = shared.n / region->n;
        const int64_t rest = shared.n % region->n;
        const int64_t begin = region->worker * share + std::min<int64_t>(region->worker, rest);
        try {
            (*shared.fn)(begin, begin + share + (region->worker < rest ? 1 : 0));
        } catch (...) {
            if (!shared.failed.exchange(true)) shared.outcome.take_current_exception();
        }
    };
    const keel_status status = host->parallel_region(host, workers, body, &call);
    return status != KEEL_OK ? status : call.outcome.report(host);
}

} // namespace keel::sdk

#endif
