// The op choose_experts.
#include "cpu/ops/ops.hpp"

#include <math.h>

namespace keel_cpu {
namespace {

constexpr uint64_t choice_features =
    KEEL_CHOOSE_SIGMOID | KEEL_CHOOSE_NORMALIZE | KEEL_CHOOSE_BIAS | KEEL_CHOOSE_GROUPS;

bool row_is_finite(const float *x, int64_t n) {
    // x - x is 0 for finite numbers and NaN for all others.
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i] - x[i];
    return sum == 0;
}

// Returns the index of the largest of n numbers; of equal numbers, the first one.
int64_t index_of_largest(const float *x, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; ++i)
        if (x[i] > x[best]) best = i;
    return best;
}

// Sets the ranks of all experts outside the best groups to -infinity. `memory` has room for as many
// floats as there are experts, and as many again for the scores of the groups.
void keep_groups(const keel_choose_experts_args *a, float *ranks, int64_t experts, float *memory) {
    const int64_t groups = a->groups, size = experts / groups;
    float *group = memory, *scores = memory + experts;
    for (int64_t g = 0; g < groups; ++g) {
        for (int64_t i = 0; i < size; ++i) group[i] = ranks[g * size + i];
        double sum = 0;
        for (uint32_t i = 0; i < a->group_top; ++i) {
            const int64_t best = index_of_largest(group, size);
            sum += static_cast<double>(group[best]);
            group[best] = -INFINITY;
        }
        scores[g] = static_cast<float>(sum);
    }
    float *kept = group; // 1 for a kept group, else 0
    for (int64_t g = 0; g < groups; ++g) kept[g] = 0;
    for (uint32_t i = 0; i < a->groups_kept; ++i) {
        const int64_t best = index_of_largest(scores, groups);
        kept[best] = 1;
        scores[best] = -INFINITY;
    }
    for (int64_t i = 0; i < experts; ++i)
        if (kept[i / size] == 0) ranks[i] = -INFINITY;
}

// Chooses k of the experts of one row. `memory` has room for 4 floats for each expert.
void choose_row(const keel_choose_experts_args *a, const float *logits, const float *bias,
                int64_t experts, int64_t k, float *memory, int32_t *index, float *weights) {
    float *scores = memory, *ranks = memory + experts;
    bool sound = row_is_finite(logits, experts);
    if (sound && experts > 0) {
        double sum = 0;
        const float most = logits[index_of_largest(logits, experts)];
        const bool sigmoid = (a->features & KEEL_CHOOSE_SIGMOID) != 0;
        for (int64_t i = 0; i < experts; ++i) {
            scores[i] = sigmoid ? 1 / (1 + expf(-logits[i])) : expf(logits[i] - most);
            sum += static_cast<double>(scores[i]);
        }
        const float factor = sigmoid ? 1 : static_cast<float>(1 / sum);
        const bool by_logit = (a->features & (KEEL_CHOOSE_BIAS | KEEL_CHOOSE_GROUPS)) == 0;
        for (int64_t i = 0; i < experts; ++i) {
            scores[i] *= factor;
            ranks[i] = by_logit ? logits[i] : scores[i] + (bias != nullptr ? bias[i] : 0);
        }
        sound = row_is_finite(ranks, experts);
        if (sound && (a->features & KEEL_CHOOSE_GROUPS) != 0)
            keep_groups(a, ranks, experts, memory + 2 * experts);
    }
    double sum = 0;
    for (int64_t j = 0; j < k; ++j) {
        index[j] = -1;
        weights[j] = NAN;
        if (!sound) continue;
        const int64_t best = index_of_largest(ranks, experts);
        index[j] = static_cast<int32_t>(best);
        weights[j] = scores[best];
        sum += static_cast<double>(scores[best]);
        ranks[best] = -INFINITY;
    }
    const bool divides = (a->features & KEEL_CHOOSE_NORMALIZE) != 0 && sum != 0;
    const double scale = static_cast<double>(a->scale) / (divides ? sum : 1);
    for (int64_t j = 0; j < k; ++j)
        weights[j] = static_cast<float>(static_cast<double>(weights[j]) * scale);
}

keel_status check_groups(keel_ctx *ctx, const keel_choose_experts_args *a) {
    if ((a->features & KEEL_CHOOSE_GROUPS) == 0) return KEEL_OK;
    const int64_t experts = a->logits->shape[1], size = a->groups == 0 ? 0 : experts / a->groups;
    if (a->groups == 0 || experts % a->groups != 0 || a->groups_kept == 0 ||
        a->groups_kept > a->groups || a->group_top == 0 || a->group_top > size ||
        a->index->shape[1] > size * a->groups_kept)
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "choose_experts: %u groups of which %u are kept, group_top %u: invalid for "
                    "%lld of %lld experts",
                    a->groups, a->groups_kept, a->group_top, (long long)a->index->shape[1],
                    (long long)experts);
    return KEEL_OK;
}

uint64_t choice_bytes(const keel_choose_experts_args *a) { // for one worker
    return static_cast<uint64_t>(round_up(a->logits->shape[1] * 16, 64));
}

} // namespace

keel_status plan_choose_experts(keel_ctx *ctx, const keel_choose_experts_args *a,
                                PlanChoice &choice) noexcept {
    keel_status status = check_features(ctx, a->features, choice_features, "choose_experts");
    if (status != KEEL_OK) return status;
    if (!is_f32(a->logits) || !is_f32(a->weights) || a->index->dtype != KEEL_DTYPE_I32 ||
        ((a->features & KEEL_CHOOSE_BIAS) != 0 && !is_f32(a->bias)))
        return fail(ctx->host, KEEL_E_UNSUPPORTED,
                    "choose_experts: expected logits, bias and weights in f32, and index in i32");
    if (a->index->shape[1] > a->logits->shape[1])
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "choose_experts: %lld experts cannot be chosen of %lld",
                    (long long)a->index->shape[1], (long long)a->logits->shape[1]);
    status = check_groups(ctx, a);
    if (status != KEEL_OK) return status;
    choice.scratch_bytes = choice_bytes(a) * ctx->threads;
    name_kernel(choice, "choose_experts");
    return KEEL_OK;
}

keel_status KEEL_CALL op_choose_experts(keel_ctx *ctx, const keel_choose_experts_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_choose_experts(ctx, a, choice);
    if (status != KEEL_OK) return status;
    uint8_t *memory = nullptr;
    if (choice.scratch_bytes != 0 && (memory = scratch(ctx, choice.scratch_bytes)) == nullptr)
        return KEEL_E_OUT_OF_MEMORY;
    const Rows logits(a->logits), index(a->index), weights(a->weights);
    const float *bias =
        (a->features & KEEL_CHOOSE_BIAS) != 0 ? data_as<const float>(a->bias) : nullptr;
    const uint64_t own = choice_bytes(a);
    const uint64_t work = static_cast<uint64_t>(logits.count * logits.n * (index.n + 16));
    return parallel(ctx, workers_for(ctx, 0, work), [&](const Team &team) {
        const Range rows = share(logits.count, 1, team);
        for (int64_t r = rows.begin; r < rows.end; ++r)
            choose_row(a, reinterpret_cast<const float *>(logits[r]), bias, logits.n, index.n,
                       reinterpret_cast<float *>(memory + own * team.worker),
                       reinterpret_cast<int32_t *>(index[r]),
                       reinterpret_cast<float *>(weights[r]));
    });
}

} // namespace keel_cpu
