#include "ops/batched_decode.hpp"

#include "base/log.hpp"
#include "device/trace.hpp"
#include "ops/executor.hpp"

namespace keel {

std::unique_ptr<BatchedDecode> BatchedDecode::settle(Executor &executor, const keel_qkv_args &qkv,
                                                     const keel_attention_args &attention,
                                                     const keel_batch_kv &kv) {
    Device &device = executor.device();
    const void *theirs = device.extension(KEEL_EXT_BATCHED_DECODE);
    if (theirs == nullptr) return nullptr;
    keel_batched_decode table;
    if (keel_adopt(&table, sizeof table, theirs, KEEL_PREFIX(keel_batched_decode, attention)) !=
            KEEL_OK ||
        table.prepare == nullptr || table.qkv_prepare == nullptr || table.attention == nullptr) {
        log().warn("backend {}: the plugin's {} table is too small, has another ABI major version "
                   "or has NULL functions; Keel computes the attention of one sequence at a time",
                   device.plugin(), KEEL_EXT_BATCHED_DECODE);
        return nullptr;
    }
    device.require_alive(KEEL_EXT_BATCHED_DECODE);
    const keel_status status =
        device.with_memory([&] { return table.prepare(device.ctx(), &qkv, &attention, &kv); });
    if (status == KEEL_E_UNSUPPORTED) {
        const std::string message = take_message();
        log().info("backend {}: a step computes the attention of one sequence at a time{}{}",
                   device.plugin(), message.empty() ? "" : ": ", message);
        return nullptr;
    }
    if (status != KEEL_OK) device.fail(status, KEEL_EXT_BATCHED_DECODE);
    return std::unique_ptr<BatchedDecode>(new BatchedDecode(executor, table));
}

namespace {

template <typename Call> void queue(Executor &executor, const char *what, const Call &call) {
    Device &device = executor.device();
    const TraceSpan span(executor.stream().trace(), what, "op");
    device.require_alive(what);
    HostServices::drop_error();
    const keel_status status = call(device.ctx());
    if (status != KEEL_OK) device.fail(status, what);
    executor.stream().op_queued(what);
}

} // namespace

void BatchedDecode::qkv_prepare(const keel_qkv_args &args, const keel_batch_kv &kv) {
    queue(executor_, "batched decode: qkv prepare",
          [&](keel_ctx *ctx) { return table_.qkv_prepare(ctx, &args, &kv); });
}

void BatchedDecode::attention(const keel_attention_args &args, const keel_batch_kv &kv) {
    queue(executor_, "batched decode: attention",
          [&](keel_ctx *ctx) { return table_.attention(ctx, &args, &kv); });
}

} // namespace keel
