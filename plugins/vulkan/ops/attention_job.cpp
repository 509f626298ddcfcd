#include "vulkan/ops/attention_job.hpp"

#include <algorithm>

namespace keel_vulkan {
namespace {

constexpr uint32_t kAttentionGroup = 128, kMergeGroup = 64, kReduceGroup = 64;
// Number of floats for queries in shared memory: 8 KiB of the 16 KiB that every device has.
constexpr uint32_t kTileFloats = 2048;
constexpr uint32_t kMostTileRows = 16;
constexpr uint32_t kMostParts = 64;
constexpr uint64_t kLoopSlots = 4096; // number of slots in a part if the device limits loops

// Returns the number of workgroups that keeps the device busy.
uint32_t wanted_groups(const keel_ctx &ctx) { return ctx.device.is_processor() ? 8 : 256; }

// Returns the smallest number of slots in a part. On a processor a workgroup costs more than on a
// GPU.
uint32_t least_slots(const keel_ctx &ctx) { return ctx.device.is_processor() ? 256 : 64; }

uint32_t k_room(const AttentionJob &job) { return room_for(job.kv->k->shape[2], 64); }

uint32_t tile_rows(const AttentionJob &job) {
    const uint32_t most = std::max(kTileFloats / k_room(job), 1u);
    const int64_t rows = job.m * job.group;
    return std::min(rows <= 4 ? 4u : rows <= 8 ? 8u : kMostTileRows, most);
}

// Caches whose keys and values have different types are rare. So for each key type there is only
// one extra pipeline for all value types. It reads the value type at run time.
uint32_t v_type(const AttentionJob &job) {
    constexpr uint32_t asked = 255;
    return job.kv->k->dtype == job.kv->v->dtype ? cache_type(job.kv->v) : asked;
}

VkPipeline flash_pipeline(keel_ctx &ctx, const AttentionJob &job, uint32_t rows) {
    return ctx.kernels.get(Kernel::attention,
                           {kAttentionGroup, cache_type(job.kv->k), job.k_by_fours, v_type(job),
                            rows, k_room(job), room_for(job.kv->v->shape[2], 64), job.output});
}

VkPipeline merge_pipeline(keel_ctx &ctx, const AttentionJob &job) {
    return ctx.kernels.get(Kernel::attention_merge, {kMergeGroup, job.output});
}

VkPipeline save_pipeline(keel_ctx &ctx) { return ctx.kernels.get(Kernel::copy, {kMergeGroup, 4}); }

VkPipeline reduce_pipeline(keel_ctx &ctx, const AttentionJob &job) {
    return ctx.kernels.get(Kernel::attention_reduce,
                           {kReduceGroup, cache_type(job.kv->k), job.k_by_fours});
}

bool reads_by_fours(const keel_tensor *k) {
    const uint32_t unit = k->dtype == KEEL_DTYPE_F32 ? 16 : k->dtype == KEEL_DTYPE_F16 ? 8 : 0;
    return unit != 0 && k->offset % unit == 0 && k->stride[0] % unit == 0 &&
           k->stride[1] % unit == 0;
}

} // namespace

void settle_attention(keel_ctx &ctx, const keel_tensor *q, const keel_kv_view *kv, bool output,
                      const keel_scores *scores, bool logits, AttentionJob &job,
                      const Seats *seats) {
    job.kv = kv;
    job.seats = seats;
    job.output = output;
    job.scores = scores;
    job.logits = logits;
    job.m = seats != nullptr ? 1 : q->shape[0];
    job.group = kv->kv_heads != 0 ? q->shape[1] / kv->kv_heads : 1;
    job.k_by_fours = reads_by_fours(kv->k);
    const int64_t rows = job.m * job.group;
    if (rows > INT32_MAX / 2)
        refuse(ctx.host, KEEL_E_UNSUPPORTED, "attention: too many queries at once");
    // The slots are split into parts if there are too few tiles of rows to keep the device busy.
    const uint64_t tiles =
        (static_cast<uint64_t>(rows) + tile_rows(job) - 1) / tile_rows(job) * job.heads();
    const uint64_t longest = static_cast<uint64_t>(kv->max_length);
    job.parts = 1;
    if (tiles != 0 && tiles < wanted_groups(ctx)) {
        const uint64_t parts = std::min(
            {wanted_groups(ctx) / tiles, longest / least_slots(ctx), uint64_t{kMostParts}});
        job.parts = std::max(static_cast<uint32_t>(parts), 1u);
    }
    const uint64_t most_slots = ctx.device.limits_loops() ? kLoopSlots : uint64_t{INT32_MAX};
    job.parts = std::max(job.parts, static_cast<uint32_t>((longest + most_slots - 1) / most_slots));
    if (scores != nullptr && ctx.device.limits_loops()) {
        const uint64_t queries =
            scores->window == 0 ? static_cast<uint64_t>(job.m)
                                : std::min<uint64_t>(scores->window, static_cast<uint64_t>(job.m));
        const uint64_t steps = queries * static_cast<uint64_t>(job.group) *
                               (static_cast<uint64_t>(q->shape[2]) / 16 + 5);
        if (steps > Device::kMostLoops)
            refuse(ctx.host, KEEL_E_UNSUPPORTED,
                   "scores of %llu queries at once are too many, because lavapipe ends loops after "
                   "65535 rounds; use smaller chunks of the prompt",
                   static_cast<unsigned long long>(queries));
    }
    const uint64_t all = static_cast<uint64_t>(rows) * job.heads();
    job.parts_bytes =
        job.parts > 1
            ? (all * job.parts * (static_cast<uint64_t>(kv->v->shape[2]) + 3) * 4 + 255) / 256 * 256
            : 0;
    job.stats_bytes = scores != nullptr && !logits ? (all * 8 + 255) / 256 * 256 : 0;
    job.saved_bytes =
        scores != nullptr && output ? all * static_cast<uint64_t>(kv->k->shape[2]) * 4 : 0;
    // A call with fewer rows can split the slots although a call with all rows does not. In a call
    // with fewer rows, tiles * parts is at most wanted_groups().
    const uint64_t split_rows =
        longest >= 2 * least_slots(ctx) ? uint64_t{wanted_groups(ctx)} * kMostTileRows : 0;
    const uint64_t split_bytes = split_rows * (static_cast<uint64_t>(kv->v->shape[2]) + 3) * 4;
    job.planned_bytes = std::max(job.parts_bytes, (split_bytes + 255) / 256 * 256) +
                        job.stats_bytes + job.saved_bytes;
}

void set_window(keel_ctx &ctx, AttentionJob &job, const keel_tensor *q_positions, int64_t window,
                const char *op) {
    AttentionParams &p = job.params;
    p.windowed = 1;
    p.q_positions = base_of(q_positions);
    p.q_positions_at = positions_of(ctx, q_positions, op);
    p.window = static_cast<int>(std::clamp<int64_t>(window, INT32_MIN, INT32_MAX));
}

void prepare_attention(keel_ctx &ctx, const AttentionJob &job) {
    if (!job.logits) {
        flash_pipeline(ctx, job, tile_rows(job));
        if (job.parts > 1) merge_pipeline(ctx, job);
    }
    if (job.scores == nullptr) return;
    reduce_pipeline(ctx, job);
    if (job.output) save_pipeline(ctx);
}

void run_attention_job(keel_ctx &ctx, AttentionJob &job, bool q_is_lost, const char *op) {
    const uint32_t heads = job.heads();
    if (job.m == 0 || heads == 0) return;
    AttentionParams &p = job.params;
    p.kv = kv_of(ctx, job.kv, op, job.seats);
    p.m = static_cast<uint>(job.m), p.group = static_cast<uint>(job.group);
    p.n_parts = job.parts;
    const auto longest = static_cast<uint64_t>(job.kv->max_length);
    p.part_slots = static_cast<uint>(((longest + job.parts - 1) / job.parts + 31) / 32 * 32);
    if (job.parts == 1) p.part_slots = static_cast<uint>(longest);
    const uint64_t memory = job.scratch_bytes() != 0 ? scratch(&ctx, job.scratch_bytes()) : 0;
    p.parts = job.parts_bytes != 0 ? memory : 0;
    p.stats = job.stats_bytes != 0 ? memory + job.parts_bytes : 0;
    const int64_t window = job.scores != nullptr ? job.scores->window : 0;
    const uint first = window == 0 || window >= job.m ? 0 : static_cast<uint>(job.m - window);
    const bool saves = q_is_lost && job.scores != nullptr;
    const uint64_t saved = memory + job.parts_bytes + job.stats_bytes;
    const auto dim = static_cast<uint>(job.kv->k->shape[2]), all_heads = heads * p.group;
    const Rows saved_at = {all_heads * dim, dim, 0};
    if (saves) {
        MoveParams save = {};
        save.x = p.q, save.to = saved;
        save.x_at = {{1, p.m, all_heads}, {0, p.q_at.outer, p.q_at.inner}, dim, p.q_at.offset};
        save.out_at = {{1, p.m, all_heads}, {0, saved_at.outer, saved_at.inner}, dim, 0};
        ctx.stream.dispatch(save_pipeline(ctx), save, groups(dim, kMergeGroup),
                            groups(uint64_t{p.m} * all_heads, 1));
    }
    if (!job.logits) {
        // If there is no output, max and sum are computed only for the contributing queries.
        p.first = job.output ? 0 : first;
        const uint32_t tile = tile_rows(job);
        const uint64_t rows = (p.m - p.first) * uint64_t{p.group};
        ctx.stream.dispatch(flash_pipeline(ctx, job, tile), p, groups(rows, tile), heads,
                            job.parts);
        if (job.parts > 1) ctx.stream.dispatch(merge_pipeline(ctx, job), p, groups(rows, 1), heads);
    }
    if (job.scores == nullptr) return;
    const Tensor out = tensor_of(ctx, job.scores->out, "scores.out");
    if (saves) p.q = saved, p.q_at = saved_at;
    p.first = first;
    p.scores = base_of(job.scores->out), p.scores_stride = out.stride[2],
    p.scores_offset = out.offset;
    p.reduce_queries = job.scores->reduce_queries, p.reduce_group = job.scores->reduce_group;
    p.accumulate = job.scores->accumulate != 0;
    p.logits = job.logits;
    ctx.stream.dispatch(reduce_pipeline(ctx, job), p, groups(longest, kReduceGroup), heads);
}

} // namespace keel_vulkan
