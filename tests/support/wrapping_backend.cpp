#include "support/wrapping_backend.hpp"

#include "ops/op_call.hpp"
#include "plugin/library.hpp"
#include "reference/reference.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace keel::test {
namespace {

constexpr const char *extension_id = "keel.test.wrapping/1";

const char *const op_names[] = {
#define KEEL_X(ID, slot, Args) #slot,
    KEEL_FOR_EACH_OP(KEEL_X)
#undef KEEL_X
};

} // namespace

struct WrappingBackend::Recording {
    struct Op {
        keel_op op;
        std::shared_ptr<OpCall> args;
    };
    std::vector<Op> ops;
};

struct WrappingBackend::Context {
    struct OpTime {
        uint64_t number, begin, end;
    };
    struct Task {
        uint64_t ticket = 0; // 0: not submitted
        std::function<keel_status()> work;
    };
    WrappingBackend &owner;
    keel_ctx *inner = nullptr;
    std::deque<Task> queue;
    uint64_t tickets = 0;
    std::unique_ptr<Recording> recording;
    std::vector<OpTime> times; // times that were not read yet
    struct LaterRead {
        bool done = false;
        std::vector<unsigned char> bytes;
    };
    std::map<uint64_t, std::shared_ptr<LaterRead>> later_reads;
    uint64_t reads = 0;

    // Runs the work with tickets up to `ticket`. UINT64_MAX: all work.
    keel_status run(uint64_t ticket) {
        keel_status first = KEEL_OK;
        while (!queue.empty() && (ticket == UINT64_MAX ||
                                  (queue.front().ticket != 0 && queue.front().ticket <= ticket))) {
            const keel_status status = queue.front().work();
            if (first == KEEL_OK) first = status;
            queue.pop_front();
        }
        return first;
    }
    keel_status later(std::function<keel_status()> work) {
        if (!owner.asynchronous) return work();
        queue.push_back({0, std::move(work)});
        return KEEL_OK;
    }
};

struct WrappingBackend::Slots {
    static Context &of(keel_ctx *ctx) { return *reinterpret_cast<Context *>(ctx); }
    static WrappingBackend &of(const keel_host *host) {
        return *static_cast<WrappingBackend *>(
            const_cast<void *>(host->get_extension(host, extension_id)));
    }
    static const keel_backend &in(Context &c) { return *c.owner.inner_; }

    static keel_status KEEL_CALL device_count(const keel_host *host, uint32_t *n) {
        WrappingBackend &w = of(host);
        if (const keel_status s = w.enter("device_count")) return s;
        *n = w.device_count.value_or(w.devices.empty() ? 1
                                                       : static_cast<uint32_t>(w.devices.size()));
        return KEEL_OK;
    }
    static keel_status KEEL_CALL device_info(const keel_host *host, uint32_t index,
                                             keel_device_info *out) {
        WrappingBackend &w = of(host);
        if (const keel_status s = w.enter("device_info")) return s;
        keel_device_info info = {KEEL_HEADER(keel_device_info)};
        if (const keel_status s = w.inner_->device_info(host, 0, &info)) return s;
        if (!w.devices.empty()) {
            if (index >= w.devices.size()) return KEEL_E_NOT_FOUND;
            std::snprintf(info.name, sizeof info.name, "%s", w.devices[index].c_str());
        }
        info.flags = w.device_flags.value_or(info.flags);
        info.type = w.device_type.value_or(info.type);
        keel_emit(out, &info, sizeof info);
        return KEEL_OK;
    }
    static keel_status KEEL_CALL ctx_create(const keel_host *host, const keel_ctx_desc *desc,
                                            keel_ctx **out) {
        WrappingBackend &w = of(host);
        *out = nullptr;
        if (const keel_status s = w.enter("ctx_create")) return s;
        keel_ctx_desc first = *desc;
        first.device = 0;
        auto context = std::unique_ptr<Context>(new Context{w});
        if (const keel_status s = w.inner_->ctx_create(host, &first, &context->inner)) return s;
        ++w.live_.contexts;
        *out = reinterpret_cast<keel_ctx *>(context.release());
        return KEEL_OK;
    }
    static void KEEL_CALL ctx_destroy(keel_ctx *ctx) {
        Context &c = of(ctx);
        c.owner.calls_.push_back({"ctx_destroy"});
        if (!c.owner.lost_) c.run(UINT64_MAX);
        in(c).ctx_destroy(c.inner);
        --c.owner.live_.contexts;
        delete &c;
    }
    static keel_status KEEL_CALL buffer_create(keel_ctx *ctx, const keel_buffer_desc *desc,
                                               keel_buffer **out) {
        Context &c = of(ctx);
        WrappingBackend &w = c.owner;
        *out = nullptr;
        if (const keel_status s = w.enter("buffer_create", 0, desc->size)) return s;
        if (desc->kind == KEEL_BUFFER_HOST_VISIBLE && !w.has_host_visible)
            return KEEL_E_UNSUPPORTED;
        if (desc->kind == KEEL_BUFFER_IMPORT && desc->size % w.import_unit != 0)
            return KEEL_E_UNSUPPORTED;
        const bool ours =
            desc->kind == KEEL_BUFFER_DEVICE || desc->kind == KEEL_BUFFER_HOST_VISIBLE;
        if (ours && (desc->size > w.max_buffer_bytes || desc->size > w.memory_limit - w.bytes_))
            return KEEL_E_OUT_OF_MEMORY;
        if (const keel_status s = in(c).buffer_create(c.inner, desc, out)) return s;
        ++w.live_.buffers;
        w.alive_.insert(*out);
        w.sizes_[*out] = ours ? desc->size : 0;
        if (ours) w.bytes_ += desc->size;
        if (ours && w.poison_buffers) {
            const std::vector<unsigned char> nan(desc->size, 0xff);
            in(c).buffer_write(c.inner, *out, 0, nan.data(), nan.size());
        }
        return KEEL_OK;
    }
    static void KEEL_CALL buffer_destroy(keel_ctx *ctx, keel_buffer *buffer) {
        if (buffer == nullptr) return;
        Context &c = of(ctx);
        c.owner.calls_.push_back({"buffer_destroy"});
        if (c.owner.lost_) c.queue.clear();
        c.run(UINT64_MAX);
        c.owner.bytes_ -= c.owner.sizes_.at(buffer);
        c.owner.sizes_.erase(buffer);
        c.owner.alive_.erase(buffer);
        in(c).buffer_destroy(c.inner, buffer);
        --c.owner.live_.buffers;
    }
    static keel_status KEEL_CALL buffer_write(keel_ctx *ctx, keel_buffer *buffer, uint64_t offset,
                                              const void *src, uint64_t n) {
        Context &c = of(ctx);
        if (const keel_status s = c.owner.enter("buffer_write", 0, n)) return s;
        if (c.recording) return misused(c);
        const auto *bytes = static_cast<const unsigned char *>(src);
        return c.later([&c, buffer, offset, copy = std::vector<unsigned char>(bytes, bytes + n)] {
            return in(c).buffer_write(c.inner, buffer, offset, copy.data(), copy.size());
        });
    }
    static keel_status KEEL_CALL buffer_read(keel_ctx *ctx, keel_buffer *buffer, uint64_t offset,
                                             void *dst, uint64_t n) {
        Context &c = of(ctx);
        if (const keel_status s = c.owner.enter("buffer_read", 0, n)) return s;
        if (c.recording) return misused(c);
        if (const keel_status s = c.run(UINT64_MAX)) return s;
        return in(c).buffer_read(c.inner, buffer, offset, dst, n);
    }
    static keel_status KEEL_CALL flush(keel_ctx *ctx, uint64_t *ticket) {
        Context &c = of(ctx);
        if (const keel_status s = c.owner.enter("flush", c.tickets + 1)) return s;
        if (c.recording) return misused(c);
        *ticket = ++c.tickets;
        for (Context::Task &task : c.queue) {
            if (task.ticket == 0) task.ticket = *ticket;
        }
        return KEEL_OK;
    }
    static keel_status KEEL_CALL wait(keel_ctx *ctx, uint64_t ticket) {
        Context &c = of(ctx);
        if (const keel_status s = c.owner.enter("wait", ticket)) return s;
        if (c.recording) return misused(c);
        if (ticket == 0 || ticket > c.tickets) return KEEL_E_INVALID_ARG;
        return c.run(ticket);
    }
    static keel_status KEEL_CALL poll(keel_ctx *ctx, uint64_t ticket) {
        Context &c = of(ctx);
        if (const keel_status s = c.owner.enter("poll", ticket)) return s;
        if (ticket == 0 || ticket > c.tickets) return KEEL_E_INVALID_ARG;
        const bool busy =
            !c.queue.empty() && c.queue.front().ticket != 0 && c.queue.front().ticket <= ticket;
        return busy ? KEEL_E_NOT_READY : KEEL_OK;
    }
    static keel_status KEEL_CALL ctx_info(keel_ctx *ctx, keel_ctx_info *out) {
        Context &c = of(ctx);
        if (const keel_status s = c.owner.enter("ctx_info")) return s;
        keel_ctx_info info = {KEEL_HEADER(keel_ctx_info)};
        if (in(c).ctx_info != nullptr) {
            if (const keel_status s = in(c).ctx_info(c.inner, &info)) return s;
        }
        info.sync = c.owner.sync;
        info.sync_ops = c.owner.sync_ops;
        if (c.owner.prefill_chunk != 0) info.prefill_chunk = c.owner.prefill_chunk;
        if (c.owner.kv_block_slots != 0) info.kv_block_slots = c.owner.kv_block_slots;
        keel_emit(out, &info, sizeof info);
        return KEEL_OK;
    }
    static keel_status KEEL_CALL mem_info(keel_ctx *ctx, keel_mem_info *out) {
        Context &c = of(ctx);
        if (const keel_status s = c.owner.enter("mem_info")) return s;
        if (c.owner.memory) {
            keel_emit(out, &*c.owner.memory, sizeof *c.owner.memory);
            return KEEL_OK;
        }
        return in(c).mem_info(c.inner, out);
    }
    static keel_status KEEL_CALL buffer_map(keel_ctx *ctx, keel_buffer *buffer, void **out) {
        Context &c = of(ctx);
        if (const keel_status s = c.owner.enter("buffer_map")) return s;
        return in(c).buffer_map(c.inner, buffer, out);
    }
    static keel_status KEEL_CALL buffer_commit(keel_ctx *ctx, keel_buffer *buffer, uint64_t offset,
                                               uint64_t n, uint32_t on) {
        Context &c = of(ctx);
        if (const keel_status s = c.owner.enter("buffer_commit", 0, n)) return s;
        if (c.recording) return misused(c);
        return c.later([&c, buffer, offset, n, on] {
            return in(c).buffer_commit(c.inner, buffer, offset, n, on);
        });
    }
    static keel_status KEEL_CALL weight_prepare(keel_ctx *ctx, const keel_weight_desc *desc,
                                                keel_weight **out) {
        Context &c = of(ctx);
        *out = nullptr;
        if (const keel_status s = c.owner.enter("weight_prepare")) return s;
        const keel_status status = in(c).weight_prepare(c.inner, desc, out);
        if (status == KEEL_OK) ++c.owner.live_.weights;
        if (status == KEEL_OK) c.owner.alive_.insert(*out);
        return status;
    }
    static void KEEL_CALL weight_destroy(keel_ctx *ctx, keel_weight *weight) {
        if (weight == nullptr) return;
        Context &c = of(ctx);
        c.owner.calls_.push_back({"weight_destroy"});
        if (c.owner.lost_) c.queue.clear();
        c.run(UINT64_MAX);
        in(c).weight_destroy(c.inner, weight);
        c.owner.alive_.erase(weight);
        --c.owner.live_.weights;
    }
    static keel_status KEEL_CALL weight_info(keel_ctx *ctx, const keel_weight *weight,
                                             keel_weight_info *out) {
        Context &c = of(ctx);
        if (const keel_status s = c.owner.enter("weight_info")) return s;
        return in(c).weight_info(c.inner, weight, out);
    }
    static keel_status KEEL_CALL op_plan(keel_ctx *ctx, keel_op op, const keel_op_args *args,
                                         keel_plan **out) {
        Context &c = of(ctx);
        *out = nullptr;
        if (const keel_status s = c.owner.enter("op_plan")) return s;
        if (c.owner.refuse_plan && c.owner.refuse_plan(op, args)) return KEEL_E_UNSUPPORTED;
        const keel_status status = in(c).op_plan(c.inner, op, args, out);
        if (status == KEEL_OK) ++c.owner.live_.plans;
        if (status == KEEL_OK) c.owner.alive_.insert(*out);
        return status;
    }
    static void KEEL_CALL plan_destroy(keel_ctx *ctx, keel_plan *plan) {
        if (plan == nullptr) return;
        Context &c = of(ctx);
        c.owner.calls_.push_back({"plan_destroy"});
        if (c.owner.lost_) c.queue.clear();
        c.run(UINT64_MAX);
        in(c).plan_destroy(c.inner, plan);
        c.owner.alive_.erase(plan);
        --c.owner.live_.plans;
    }
    static keel_status KEEL_CALL plan_info(keel_ctx *ctx, const keel_plan *plan,
                                           keel_plan_info *out) {
        Context &c = of(ctx);
        if (const keel_status s = c.owner.enter("plan_info")) return s;
        return in(c).plan_info(c.inner, plan, out);
    }
    template <keel_op Op, typename Args>
    static keel_status KEEL_CALL run_op(keel_ctx *ctx, const Args *args) {
        Context &c = of(ctx);
        if (const keel_status s = c.owner.enter(op_names[Op - 1])) return s;
        const auto *any = reinterpret_cast<const keel_op_args *>(args);
        if (c.owner.refuse_call && c.owner.refuse_call(Op, any)) return KEEL_E_UNSUPPORTED;
        if (c.recording) {
            c.recording->ops.push_back({Op, std::make_shared<OpCall>(Op, any)});
            return KEEL_OK;
        }
        if (c.owner.times_ops_) c.owner.time_op(c);
        if (!c.owner.asynchronous) return call_op(in(c), Op, c.inner, any);
        return c.later([&c, kept = std::make_shared<OpCall>(Op, any)] {
            return call_op(in(c), Op, c.inner, kept->args());
        });
    }
    static keel_status misused(Context &c) {
        ++c.owner.misuses_;
        return KEEL_E_INVALID_ARG;
    }
    // ---- keel.replay/1 ----
    static keel_status KEEL_CALL replay_begin(keel_ctx *ctx) {
        Context &c = of(ctx);
        if (const keel_status s = c.owner.enter("replay_begin")) return s;
        if (c.recording) return misused(c);
        c.recording = std::make_unique<Recording>();
        return KEEL_OK;
    }
    static keel_status KEEL_CALL replay_end(keel_ctx *ctx, keel_recording **out) {
        Context &c = of(ctx);
        if (out != nullptr) *out = nullptr;
        std::unique_ptr<Recording> done = std::move(c.recording);
        if (const keel_status s = c.owner.enter("replay_end")) return s;
        if (!done) return misused(c);
        if (out == nullptr) return KEEL_OK;
        ++c.owner.live_.recordings;
        *out = reinterpret_cast<keel_recording *>(done.release());
        return KEEL_OK;
    }
    static keel_status KEEL_CALL replay_submit(keel_ctx *ctx, keel_recording *recording) {
        Context &c = of(ctx);
        if (const keel_status s = c.owner.enter("replay_submit")) return s;
        if (c.recording) return misused(c);
        for (const Recording::Op &op : reinterpret_cast<Recording *>(recording)->ops) {
            bool stale = false;
            op.args->list_handles([&](const void *used) {
                stale = stale || (used != nullptr && !c.owner.alive_.contains(used));
            });
            if (stale) return misused(c);
            const keel_status s =
                c.later([&c, op] { return call_op(in(c), op.op, c.inner, op.args->args()); });
            if (s != KEEL_OK) return s;
        }
        return KEEL_OK;
    }
    static void KEEL_CALL replay_destroy(keel_ctx *ctx, keel_recording *recording) {
        if (recording == nullptr) return;
        Context &c = of(ctx);
        c.owner.calls_.push_back({"replay_destroy"});
        --c.owner.live_.recordings;
        delete reinterpret_cast<Recording *>(recording);
    }
    // ---- keel.timestamps/1: on the clock of this backend, op n takes from 10 n to 10 n + 5
    // microseconds ----
    static keel_status KEEL_CALL times_enable(keel_ctx *ctx, uint32_t on) {
        Context &c = of(ctx);
        if (const keel_status s = c.owner.enter("times_enable")) return s;
        c.owner.times_ops_ = on != 0;
        c.owner.timed_ = 0;
        c.times.clear();
        return KEEL_OK;
    }
    static keel_status KEEL_CALL times_read(keel_ctx *ctx, uint64_t *number, uint64_t *begin_ns,
                                            uint64_t *end_ns, uint32_t capacity, uint32_t *n) {
        Context &c = of(ctx);
        *n = 0;
        if (const keel_status s = c.owner.enter("times_read")) return s;
        for (; *n < capacity && !c.times.empty(); c.times.erase(c.times.begin()), ++*n) {
            number[*n] = c.times.front().number;
            begin_ns[*n] = c.times.front().begin;
            end_ns[*n] = c.times.front().end;
        }
        return KEEL_OK;
    }
    static keel_status KEEL_CALL times_now(keel_ctx *ctx, uint64_t *ns) {
        Context &c = of(ctx);
        *ns = 0;
        if (const keel_status s = c.owner.enter("times_now")) return s;
        *ns = c.owner.timed_ * 10000 + 6000;
        return KEEL_OK;
    }
    static keel_status KEEL_CALL read_later_start(keel_ctx *ctx, keel_buffer *buffer,
                                                  uint64_t offset, uint64_t n, uint64_t *number) {
        Context &c = of(ctx);
        *number = 0;
        if (const keel_status s = c.owner.enter("read_later_start", 0, n)) return s;
        if (c.recording || n == 0 || n > KEEL_READ_LATER_BYTES) return misused(c);
        if (c.later_reads.size() == KEEL_READ_LATER_MOST) return KEEL_E_UNSUPPORTED;
        auto read = std::make_shared<Context::LaterRead>();
        read->bytes.resize(n);
        const keel_status status = c.later([&c, buffer, offset, read] {
            read->done = true;
            return in(c).buffer_read(c.inner, buffer, offset, read->bytes.data(),
                                     read->bytes.size());
        });
        if (status != KEEL_OK) return status;
        *number = ++c.reads;
        c.later_reads.emplace(*number, std::move(read));
        ++c.owner.live_.reads;
        return KEEL_OK;
    }
    static keel_status KEEL_CALL read_later_finish(keel_ctx *ctx, uint64_t number, void *dst) {
        Context &c = of(ctx);
        const auto at = c.later_reads.find(number);
        if (at == c.later_reads.end()) return misused(c);
        const std::shared_ptr<Context::LaterRead> read = at->second;
        c.later_reads.erase(at);
        --c.owner.live_.reads;
        if (dst == nullptr) return KEEL_OK;
        if (const keel_status s = c.owner.enter("read_later_finish", 0, read->bytes.size()))
            return s;
        // Work that is queued after the read does not run now.
        while (!read->done) {
            const keel_status status = c.queue.front().work();
            c.queue.pop_front();
            if (status != KEEL_OK) return status;
        }
        std::memcpy(dst, read->bytes.data(), read->bytes.size());
        return KEEL_OK;
    }
    static keel_status KEEL_CALL stream_counts(keel_ctx *ctx, keel_stream_counts *out) {
        keel_stream_counts now = {KEEL_HEADER(keel_stream_counts)};
        now.submits = of(ctx).owner.own_submits;
        now.waits = of(ctx).owner.own_waits;
        keel_emit(out, &now, sizeof now);
        return KEEL_OK;
    }
    static const void *extension(const WrappingBackend &w, const char *id) {
        static const keel_read_later later = {KEEL_HEADER(keel_read_later), read_later_start,
                                              read_later_finish, nullptr};
        static const keel_stream_counts_table counts = {KEEL_HEADER(keel_stream_counts_table),
                                                        stream_counts};
        if (w.reads_later && std::string_view(id) == KEEL_EXT_READ_LATER) return &later;
        if (w.tells_counts && std::string_view(id) == KEEL_EXT_STREAM_COUNTS) return &counts;
        static const keel_replay replay = {
            KEEL_HEADER(keel_replay), replay_begin, replay_end, replay_submit,
            replay_destroy,           "kept calls"};
        static const keel_timestamps times = {KEEL_HEADER(keel_timestamps), times_enable,
                                              times_read, times_now};
        if (w.records_steps && std::string_view(id) == KEEL_EXT_REPLAY) return &replay;
        if (w.tells_times && std::string_view(id) == KEEL_EXT_TIMESTAMPS) return &times;
        return nullptr;
    }
    static keel_backend table();
};

void WrappingBackend::time_op(Context &c) {
    ++timed_;
    if (untimed_op == timed_) return;
    c.times.push_back({timed_, timed_ * 10000, timed_ * 10000 + 5000});
}

namespace {

// Every function of the table except ops, in its order. The functions after `wait` are optional.
// clang-format off
#define KEEL_TEST_SLOTS(X) \
    X(device_count) X(device_info) X(ctx_create) X(ctx_destroy) X(buffer_create) \
    X(buffer_destroy) X(buffer_write) X(buffer_read) X(flush) X(wait) X(poll) X(ctx_info) \
    X(mem_info) X(buffer_map) X(buffer_commit) X(weight_prepare) X(weight_destroy) \
    X(weight_info) X(op_plan) X(plan_destroy) X(plan_info)
// clang-format on

} // namespace

keel_backend WrappingBackend::Slots::table() {
    keel_backend t = {};
    t.h = KEEL_HEADER(keel_backend);
#define KEEL_X(slot) t.slot = slot;
    KEEL_TEST_SLOTS(KEEL_X)
#undef KEEL_X
#define KEEL_X(ID, slot, Args) t.slot = run_op<KEEL_OP_##ID, Args>;
    KEEL_FOR_EACH_OP(KEEL_X)
#undef KEEL_X
    return t;
}

WrappingBackend::WrappingBackend(const keel_backend *inner)
    : inner_(inner != nullptr ? inner : reference_backend()), table_(Slots::table()),
      host_(std::make_shared<HostServices>(1)) {
    host_->add_extension(extension_id, this);
    // If the wrapped backend lacks a function, this backend lacks it too.
#define KEEL_X(slot)                                                                               \
    if (inner_->slot == nullptr) table_.slot = nullptr;
    KEEL_TEST_SLOTS(KEEL_X)
#undef KEEL_X
#define KEEL_X(ID, slot, Args)                                                                     \
    if (inner_->slot == nullptr) table_.slot = nullptr;
    KEEL_FOR_EACH_OP(KEEL_X)
#undef KEEL_X
}

WrappingBackend::~WrappingBackend() = default;

void WrappingBackend::hide(const std::string &slot) {
#define KEEL_X(name)                                                                               \
    if (slot == #name) return void(table_.name = nullptr);
    KEEL_TEST_SLOTS(KEEL_X)
#undef KEEL_X
#define KEEL_X(ID, name, Args)                                                                     \
    if (slot == #name) return void(table_.name = nullptr);
    KEEL_FOR_EACH_OP(KEEL_X)
#undef KEEL_X
    throw std::logic_error("the backend table has no slot " + slot);
}

void WrappingBackend::hide_all_but(const std::vector<std::string> &slots) {
    std::vector<std::string> all;
#define KEEL_X(name) all.push_back(#name);
    KEEL_TEST_SLOTS(KEEL_X)
#undef KEEL_X
    all.erase(all.begin(), all.begin() + 10); // removes the required functions
    all.insert(all.end(), op_slots().begin(), op_slots().end());
    for (const std::string &slot : all) {
        if (std::find(slots.begin(), slots.end(), slot) == slots.end()) hide(slot);
    }
}

const std::vector<std::string> &WrappingBackend::op_slots() {
    static const std::vector<std::string> names(std::begin(op_names), std::end(op_names));
    return names;
}

void WrappingBackend::fail_nth(uint64_t n, keel_status status, const std::string &slot) {
    fault_ = {n, status, slot, "", false};
}

keel_status WrappingBackend::enter(const char *slot, uint64_t ticket, uint64_t bytes) {
    calls_.push_back({slot, ticket, bytes});
    if (lost_) {
        ++calls_after_loss_;
        return KEEL_E_DEVICE_LOST;
    }
    if (fault_.left == 0 || (!fault_.slot.empty() && fault_.slot != slot) || --fault_.left > 0)
        return KEEL_OK;
    fault_.fired = true;
    fault_.where = slot;
    lost_ = fault_.status == KEEL_E_DEVICE_LOST;
    host_->table()->set_error(host_->table(), fault_.status,
                              (std::string("injected into ") + slot).c_str());
    return fault_.status;
}

DeviceSpec WrappingBackend::spec(const std::string &selector) {
    DeviceSpec spec;
    spec.plugin = "wrapping";
    spec.table = adopt_backend(&table_, "backend wrapping");
    spec.selector = selector;
    spec.host = host_;
    spec.extension = [this](const char *id) { return Slots::extension(*this, id); };
    return spec;
}

uint64_t WrappingBackend::count(const std::string &slot) const {
    return static_cast<uint64_t>(
        std::count_if(calls_.begin(), calls_.end(), [&](const Call &c) { return c.slot == slot; }));
}

uint64_t WrappingBackend::ops() const {
    uint64_t n = 0;
    for (const std::string &slot : op_slots()) n += count(slot);
    return n;
}

} // namespace keel::test
