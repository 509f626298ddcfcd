/* A policy without faults, which keeps the newest slots. Each bad plugin in this folder changes
 * one thing. */
#ifndef KEEL_TESTS_GOOD_H
#define KEEL_TESTS_GOOD_H

#include <keel/policy.h>

static inline keel_status good_create(const keel_host *host, const keel_geometry *geometry,
                                      const keel_param *const *params, uint32_t n_params,
                                      uint64_t seed, keel_policy_needs *needs,
                                      keel_policy_state **out) {
    keel_policy_needs mine = {KEEL_HEADER(keel_policy_needs)};
    (void)host, (void)geometry, (void)params, (void)n_params, (void)seed;
    mine.granularity = KEEL_KEEP_LAYER;
    mine.output = KEEL_OUTPUT_KEEP;
    keel_emit(needs, &mine, sizeof mine);
    *out = NULL;
    return KEEL_OK;
}

static inline void good_destroy(keel_policy_state *state) { (void)state; }

static inline keel_status good_decide(keel_policy_state *state, const keel_policy_input *input,
                                      keel_policy_decision *decision) {
    (void)state;
    for (uint32_t head = 0; head < input->kv_heads; ++head) {
        const int32_t length = input->lengths[head];
        const int32_t budget = input->budgets[head] < length ? input->budgets[head] : length;
        for (int32_t i = 0; i < budget; ++i)
            decision->keep[head * input->stride + i] = length - budget + i;
        decision->keep_count[head] = budget;
    }
    return KEEL_OK;
}

static inline keel_status good_reset(keel_policy_state *state) {
    (void)state;
    return KEEL_OK;
}

#define GOOD_SLOTS                                                                                 \
    .create = good_create, .destroy = good_destroy, .decide = good_decide, .reset = good_reset

#define GOOD_TEXTS(name)                                                                           \
    .min_host_abi = KEEL_ABI_VERSION, .kind = KEEL_PLUGIN_POLICY, .id = name, .version = "1.0.0",  \
    .vendor = "Keel's tests", .license = "MIT", .doc = "Keeps the newest slots.",                  \
    .build_info = "test", .sanitizer = KEEL_SANITIZER_HERE

#endif
