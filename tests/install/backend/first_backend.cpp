// first_backend: the smallest backend that computes something. It has the ten required functions
// and `matmul` in f32. All other ops run on the core's reference, which `keel run --explain` shows.
//
//     backend: {plugin: first_backend, params: {threads: 2}}
#include <keel/sdk.hpp>

#include <cstring>

namespace sdk = keel::sdk;

// ---- the backend defines these opaque types ----

struct keel_ctx {
    const keel_host *host; // valid until ctx_destroy returns
    uint32_t threads;
    uint64_t ticket =
        // ticket of the last flush; each op is done when its call returns, so each ticket is done
        0;
};

struct keel_buffer {
    sdk::HostArray<unsigned char> bytes; // aligned to 64 bytes
};

static const keel_host *host_of(const keel_ctx *ctx) { // slot<> uses this host for its messages
    return ctx->host;
}

// ---- devices and contexts ----

static keel_status device_count(const keel_host *, uint32_t *n) {
    *n = 1;
    return KEEL_OK;
}

static keel_status device_info(const keel_host *, uint32_t index, keel_device_info *out) {
    if (index != 0)
        throw sdk::Failure(KEEL_E_NOT_FOUND, "device %u: there is only device 0", index);
    keel_device_info info = {};
    std::strcpy(info.name, "First processor");
    std::strcpy(info.vendor, "An example");
    info.type = KEEL_DEVICE_CPU;
    info.flags = KEEL_DEVICE_UNIFIED;
    keel_emit(out, &info, sizeof info); // copies as many bytes as the host's struct has
    return KEEL_OK;
}

// The host's structs may be shorter or longer than the structs of this plugin. This function
// returns a copy in which missing members are 0.
template <class Struct> static Struct adopted(const Struct *theirs, uint32_t required) {
    Struct mine;
    if (keel_adopt(&mine, sizeof mine, theirs, required) != KEEL_OK)
        throw sdk::Failure(KEEL_E_VERSION, "a struct of another ABI version");
    return mine;
}

static keel_status ctx_create(const keel_host *host, const keel_ctx_desc *theirs, keel_ctx **out) {
    keel_host known; // an older host without the functions that the plugin calls is refused
    if (keel_adopt(&known, sizeof known, host, KEEL_PREFIX(keel_host, parallel_region)) != KEEL_OK)
        return KEEL_E_VERSION;
    const keel_ctx_desc desc = adopted(theirs, KEEL_PREFIX(keel_ctx_desc, params));
    if (desc.device != 0)
        throw sdk::Failure(KEEL_E_NOT_FOUND, "device %u: there is only device 0", desc.device);
    const sdk::Params params(desc.params, desc.n_params);
    *out = new keel_ctx{host, static_cast<uint32_t>(params.integer("threads"))};
    return KEEL_OK;
}

static void ctx_destroy(keel_ctx *ctx) { delete ctx; }

// ---- buffers ----

static keel_status buffer_create(keel_ctx *ctx, const keel_buffer_desc *theirs, keel_buffer **out) {
    const keel_buffer_desc desc = adopted(theirs, KEEL_PREFIX(keel_buffer_desc, kind));
    if (desc.kind != KEEL_BUFFER_DEVICE && desc.kind != KEEL_BUFFER_HOST_VISIBLE)
        return KEEL_E_UNSUPPORTED;
    *out = new keel_buffer{sdk::HostArray<unsigned char>(ctx->host, desc.size)};
    return KEEL_OK;
}

static void buffer_destroy(keel_ctx *, keel_buffer *buffer) { delete buffer; }

static keel_status buffer_write(keel_ctx *, keel_buffer *buffer, uint64_t offset, const void *src,
                                uint64_t n) {
    if (n != 0) std::memcpy(buffer->bytes.data() + offset, src, n);
    return KEEL_OK;
}

static keel_status buffer_read(keel_ctx *, keel_buffer *buffer, uint64_t offset, void *dst,
                               uint64_t n) {
    if (n != 0) std::memcpy(dst, buffer->bytes.data() + offset, n);
    return KEEL_OK;
}

// Device memory is host memory in this backend. With buffer_map, the core's reference ops work on
// this memory without copies.
static keel_status buffer_map(keel_ctx *, keel_buffer *buffer, void **out) {
    *out = buffer->bytes.data();
    return KEEL_OK;
}

// ---- the stream: an op is done when its call returns, so there is nothing to wait for ----

static keel_status flush(keel_ctx *ctx, uint64_t *ticket) {
    *ticket = ++ctx->ticket;
    return KEEL_OK;
}

static keel_status wait(keel_ctx *ctx, uint64_t ticket) {
    if (ticket > ctx->ticket)
        throw sdk::Failure(KEEL_E_INVALID_ARG, "a ticket that was never given");
    return KEEL_OK;
}

// ---- out[m, n] = x[m, k] * W[n, k]^T (+ bias), in f32 ----

static keel_status matmul(keel_ctx *ctx, const keel_matmul_args *args) {
    // If a feature or dtype is unknown, the op must return KEEL_E_UNSUPPORTED before it changes
    // anything. The core then uses a fallback.
    if ((args->features & ~uint64_t{KEEL_MATMUL_BIAS | KEEL_MATMUL_ACCUMULATE}) != 0)
        return KEEL_E_UNSUPPORTED;
    if (args->weight != nullptr || args->x->dtype != KEEL_DTYPE_F32 ||
        args->w->dtype != KEEL_DTYPE_F32 || args->out->dtype != KEEL_DTYPE_F32) {
        return KEEL_E_UNSUPPORTED;
    }
    const sdk::View<const float> x(*args->x, args->x->buffer->bytes.data());
    const sdk::View<const float> w(*args->w, args->w->buffer->bytes.data());
    const sdk::View<float> out(*args->out, args->out->buffer->bytes.data());
    const float *bias = nullptr;
    if ((args->features & KEEL_MATMUL_BIAS) != 0)
        bias = sdk::View<const float>(*args->bias, args->bias->buffer->bytes.data()).row(0);
    const bool accumulate = (args->features & KEEL_MATMUL_ACCUMULATE) != 0;
    const int64_t k = x.inner();

    // The columns of the output are divided among the host's threads. The core has checked the
    // shapes.
    const int64_t grain = ctx->threads == 1 ? out.inner() : 64;
    return sdk::parallel_for(ctx->host, out.inner(), grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = 0; i < out.rows(); ++i) {
            const float *a = x.row(i);
            float *y = out.row(i);
            for (int64_t j = begin; j < end; ++j) {
                const float *b = w.row(j);
                double sum = bias != nullptr ? bias[j] : 0.0;
                for (int64_t p = 0; p < k; ++p) sum += static_cast<double>(a[p]) * b[p];
                y[j] = accumulate ? y[j] + static_cast<float>(sum) : static_cast<float>(sum);
            }
        }
    });
}

// ---- the declarations that Keel reads ----

static const keel_param_spec threads =
    KEEL_INT_PARAM("threads", "0", 0, 256, "1: single-threaded; else the host's team");
static const keel_param_spec *const params[] = {&threads};

// Functions that are not set are NULL. The core computes these ops with other ops, or runs them
// itself.
static constexpr keel_backend make_table() {
    keel_backend table = {};
    table.h = KEEL_HEADER(keel_backend);
    table.device_count = sdk::slot<device_count>;
    table.device_info = sdk::slot<device_info>;
    table.ctx_create = sdk::slot<ctx_create>;
    table.ctx_destroy = sdk::slot<ctx_destroy>;
    table.buffer_create = sdk::slot<buffer_create>;
    table.buffer_destroy = sdk::slot<buffer_destroy>;
    table.buffer_write = sdk::slot<buffer_write>;
    table.buffer_read = sdk::slot<buffer_read>;
    table.buffer_map = sdk::slot<buffer_map>;
    table.flush = sdk::slot<flush>;
    table.wait = sdk::slot<wait>;
    table.matmul = sdk::slot<matmul>;
    return table;
}
static constexpr keel_backend table = make_table();

static const keel_plugin plugin = {KEEL_HEADER(keel_plugin),
                                   KEEL_ABI_VERSION, // min_host_abi
                                   KEEL_PLUGIN_BACKEND,
                                   "first_backend", // the id is the file's name without .so
                                   "1.0.0",
                                   "An example",
                                   "MIT",
                                   "A first backend: matmul in f32, the rest by the core.",
                                   __VERSION__,
                                   0, // caps
                                   KEEL_SANITIZER_HERE,
                                   1, // n_params
                                   params,
                                   &table,
                                   nullptr}; // no extensions

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t) { return &plugin; }
