// C++17 helpers for authors of plugins: errors, parameters, memory, tensors, threads.
//
// They are optional, and header-only: a plugin can also be written against the C headers alone. The
// helpers keep C++ exceptions inside the plugin and turn them into a status and a message. They use
// only standard headers. For policies and budget allocators, use sdk_policy.hpp, which writes whole
// plugins.
//
// HOW IT WORKS. Write the functions of a table as normal C++ functions that may throw. slot<f>
// wraps such a function in a C function that never throws. If the function throws, the wrapper
// reports the message to the host and returns the status.
//
// EXAMPLE. A slot of a backend:
//
//   struct keel_ctx { const keel_host *host; ... };      // the plugin defines the opaque types
//
//   // Tells slot<> where to report errors. Declare it before the first slot<>.
//   const keel_host *host_of(const keel_ctx *ctx) { return ctx->host; }
//
//   keel_status matmul(keel_ctx *ctx, const keel_matmul_args *args) {
//       if (args->w == nullptr) throw keel::sdk::Failure(KEEL_E_INVALID_ARG, "matmul without w");
//       ...
//       return KEEL_OK;
//   }
//   table.matmul = keel::sdk::slot<matmul>;
//
// Everything here exists since 0.1. Only one thread at a time may use an object of these classes,
// unless its comment says otherwise.
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

// An exception with a status and a text of at most 251 bytes. Throw it anywhere inside a function
// that slot<> wraps. The text is inside the object, so throwing KEEL_E_OUT_OF_MEMORY allocates
// nothing.
class Failure : public std::exception {
  public:
    // Makes a Failure with this status and a copy of `text`.
    Failure(keel_status status, const char *text) noexcept : status_(status) {
        std::snprintf(text_, sizeof text_, "%s", text);
    }
    // Makes the text like printf: Failure(KEEL_E_INVALID_ARG, "x has %d columns", n).
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

// A status and a text, without allocated memory. The initial status is KEEL_OK.
struct Outcome {
    keel_status status = KEEL_OK;
    char text[252] = {};

    // Takes over the exception that is being handled. Call it inside a catch block. A Failure gives
    // its status and text. std::bad_alloc becomes KEEL_E_OUT_OF_MEMORY, and all other exceptions
    // become KEEL_E_INTERNAL.
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
            set(KEEL_E_INTERNAL, "the plugin threw an exception that is not a std::exception");
        }
    }
    // Sets the status and the text. The text is cut to 251 bytes.
    void set(keel_status why, const char *message) noexcept {
        status = why;
        std::snprintf(text, sizeof text, "%s", message);
    }
    // Passes the text to the host's set_error, unless the status is KEEL_OK or `host` is NULL.
    // Returns the status.
    keel_status report(const keel_host *host) const noexcept {
        if (status != KEEL_OK && host != nullptr) host->set_error(host, status, text);
        return status;
    }
};

// Runs `body`, which returns a keel_status or nothing. Returns its status, or KEEL_OK. An exception
// becomes a status, and its message is passed to `host`, which may be NULL.
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

// Returns the host to which slot<> reports errors, from the first argument of the wrapped function.
// Add overloads for the opaque types of your plugin (keel_ctx, keel_policy_state) in the global
// namespace, before the first slot<>. Without an overload, an error has its status but no text.
inline const keel_host *host_of(const keel_host *host) noexcept {
    return host;
}
inline const keel_host *host_of(const volatile void *) noexcept {
    return nullptr;
}

// The wrappers that slot<> uses. A wrapped function returns a keel_status, nothing, or a pointer.
// If a function that returns a pointer throws, the wrapper returns NULL.
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

// slot<function> is a function pointer for a table: a C function that calls `function` and never
// throws. slot<> also fits the body of keel_plugin_query_v0. There an exception gives NULL, which
// means that the plugin refuses the core.
template <auto Function>
inline constexpr auto slot = &Slot<Function>::call;

// ---- parameters --------------------------------------------------------------------------------

// The parameters that a create function receives, by key. The core passes every row of the plugin's
// table, with defaults and checked ranges. So a key that is missing here is a bug of the plugin:
// the functions then throw Failure(KEEL_E_INTERNAL). Valid during the create call.
class Params {
  public:
    Params(const keel_param *const *params, uint32_t n) noexcept : params_(params), n_(n) {}

    // Value of an INT.
    int64_t integer(const char *key) const { return at(key).i; }
    // Value of a BOOL.
    bool flag(const char *key) const { return at(key).i != 0; }
    // Value of a FLOAT or an INT.
    double number(const char *key) const { return at(key).f; }
    // Value of a STRING, CHOICE or PATH. The core owns the text; it is valid during the create
    // call.
    const char *text(const char *key) const {
        return at(key).s;
    }
    // Returns true if the value of this STRING, CHOICE or PATH is `word`.
    bool is(const char *key, const char *word) const { return keel_same(at(key).s, word) != 0; }
    // Returns true if the pipeline file gives the value, and false if the value is the default.
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

// n elements of plain data from the host's allocator. They are not initialized. The object owns
// them and frees them when it is destroyed. The host must live longer.
template <typename T>
class HostArray {
    static_assert(std::is_trivial_v<T>, "for plain data");

  public:
    HostArray() = default;
    // `align`: bytes, a power of two. Throws Failure(KEEL_E_OUT_OF_MEMORY).
    HostArray(const keel_host *host, uint64_t n, uint64_t align = 64)
        : memory_(nullptr, Free{host}), size_(n) {
        void *block =
            n > UINT64_MAX / sizeof(T) ? nullptr : host->alloc(host, n * sizeof(T), align);
        if (block == nullptr) {
            throw Failure(KEEL_E_OUT_OF_MEMORY,
                          "the host could not allocate %llu elements of %zu bytes each",
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

// The elements of a tensor in memory that the plugin can read. T is the C++ type of a plain element
// type, such as float. For inputs, T is const. A View owns nothing: tensor and memory must outlive
// it.
template <typename T>
class View {
    using Byte = std::conditional_t<std::is_const_v<T>, const unsigned char, unsigned char>;
    using Void = std::conditional_t<std::is_const_v<T>, const void, void>;

  public:
    // `base`: start of the tensor's buffer. The tensor's dtype must fit T; it is not checked.
    View(const keel_tensor &tensor, Void *base) noexcept
        : tensor_(&tensor), start_(static_cast<Byte *>(base) + tensor.offset) {}

    uint32_t rank() const noexcept { return tensor_->rank; }
    // Elements along a dimension; 0 is the outermost.
    int64_t size(uint32_t dimension) const noexcept { return tensor_->shape[dimension]; }
    // Elements of a row.
    int64_t inner() const noexcept { return tensor_->shape[tensor_->rank - 1]; }
    // Number of rows: the product of all dimensions but the innermost.
    int64_t rows() const noexcept {
        int64_t n = 1;
        for (uint32_t d = 0; d + 1 < tensor_->rank; ++d)
            n *= tensor_->shape[d];
        return n;
    }
    // First element of a row. `index` counts the rows over all outer dimensions; the outermost
    // dimension changes slowest. The elements of a row are contiguous.
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

// Calls fn(begin, end) on the host's workers. The ranges [begin, end) together cover 0..n-1 once.
// Each range has at least `grain` elements (fewer only if n is smaller). Returns when all calls
// have returned. If fn throws, the first exception becomes the status and the message. Must not be
// called inside another region: this gives KEEL_E_INVALID_ARG.
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
