// The reference backend with one wrong number for models/tiny: in every decode step, element 17 of
// the values that layer 3's down projection adds to the residual stream is wrong. The backend has
// no RESERVE buffers, so the cache's memory grows while a prompt is read.

#include "reference/reference.hpp"

#include <keel/plugin.h>

#include <atomic>

namespace {

constexpr int64_t hidden = 256, intermediate = 768, layers = 6, wrong_layer = 3, wrong_element = 17;

keel_status KEEL_CALL matmul(keel_ctx *ctx, const keel_matmul_args *args) {
    const keel_backend &table = *keel::reference_backend();
    const keel_status status = table.matmul(ctx, args);
    const bool is_down = args->x->shape[0] == 1 && args->x->shape[1] == intermediate &&
                         args->out->shape[1] == hidden;
    static std::atomic<int64_t> calls{0};
    if (status != KEEL_OK || !is_down || calls++ % layers != wrong_layer) return status;
    const uint64_t at = args->out->offset + wrong_element * sizeof(float);
    float value = 0;
    const keel_status read = table.buffer_read(ctx, args->out->buffer, at, &value, sizeof value);
    if (read != KEEL_OK) return read;
    value += 0.5F;
    return table.buffer_write(ctx, args->out->buffer, at, &value, sizeof value);
}

} // namespace

extern "C" KEEL_EXPORT const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t) {
    static const keel_backend table = [] {
        keel_backend t = *keel::reference_backend();
        t.matmul = matmul;
        t.buffer_commit = nullptr;
        return t;
    }();
    static const keel_plugin plugin = [] {
        keel_plugin p = *keel::reference_plugin();
        p.id = "wrong_backend";
        p.doc = "The reference with one wrong number.";
        p.vtable = &table;
        return p;
    }();
    return &plugin;
}
