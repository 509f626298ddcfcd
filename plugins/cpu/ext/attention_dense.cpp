// keel.attention_dense/1: the function table. The functions check the arguments, because hosts call
// them without the core's checks.
#include "cpu/ext/attention_dense.hpp"

#include "cpu/attention/dense.hpp"

namespace keel_cpu {
namespace {

uint64_t size_of_buffer(const keel_buffer *buffer) { return buffer->size; }

// Copies the caller's struct. Members that the caller's struct does not have become zero.
template <class T> keel_status adopt(keel_ctx *ctx, T &mine, const T *theirs, const char *name) {
    if (keel_adopt(&mine, sizeof(T), theirs, sizeof(keel_header)) == KEEL_OK) return KEEL_OK;
    return fail(ctx->host, KEEL_E_INVALID_ARG,
                "attention_dense: the %s is NULL or has another ABI version", name);
}

keel_status refuse(keel_ctx *ctx, const keel::sdk::DenseCheck &check) {
    return fail(ctx->host, check.status(), "%s", check.text());
}

keel_status KEEL_CALL forward(keel_ctx *ctx, const keel_dense_attention *attention,
                              const keel_dense_outputs *outputs) noexcept {
    keel_dense_attention a;
    keel_dense_outputs o;
    keel_status status = adopt(ctx, a, attention, "keel_dense_attention");
    if (status == KEEL_OK) status = adopt(ctx, o, outputs, "keel_dense_outputs");
    if (status != KEEL_OK) return status;
    keel::sdk::DenseCheck check("forward", size_of_buffer);
    if (check.forward(a, o) != KEEL_OK) return refuse(ctx, check);
    return run_dense_forward(ctx, DenseAttention(ctx->attention, a, check.sizes()), o);
}

keel_status KEEL_CALL backward(keel_ctx *ctx, const keel_dense_attention *attention,
                               const keel_dense_gradients *gradients) noexcept {
    keel_dense_attention a;
    keel_dense_gradients g;
    keel_status status = adopt(ctx, a, attention, "keel_dense_attention");
    if (status == KEEL_OK) status = adopt(ctx, g, gradients, "keel_dense_gradients");
    if (status != KEEL_OK) return status;
    keel::sdk::DenseCheck check("backward", size_of_buffer);
    if (check.backward(a, g) != KEEL_OK) return refuse(ctx, check);
    return run_dense_backward(ctx, DenseAttention(ctx->attention, a, check.sizes()), g);
}

} // namespace

const keel_dense attention_dense = {KEEL_HEADER(keel_dense), forward, backward};

} // namespace keel_cpu
