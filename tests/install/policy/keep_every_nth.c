/* keep_every_nth: a KV-cache policy in plain C. It keeps the newest tokens, and every n-th
 * position of the older tokens.
 *
 *     policy:
 *       plugin: keep_every_nth
 *       params: {n: 4, recent: 64}
 *       budget: {tokens: 256}
 *
 * The policy returns scores; slots with higher scores stay. The core keeps the slots with the
 * highest scores within the budget, and never evicts a protected slot. */
#include <keel/policy.h>

/* ---- parameters: the core checks the YAML with this table, and `keel plugins show` prints it
 * ---- */

static const keel_param_spec param_n =
    KEEL_INT_PARAM("n", "4", 1, 1024, "every n-th position is worth keeping");
static const keel_param_spec param_recent =
    KEEL_INT_PARAM("recent", "64", 0, 1048576, "newest tokens that always stay");
static const keel_param_spec *const params[] = {
    &param_n, &param_recent}; /* create() receives the parameters in this order */

/* ---- the state of one sequence ---- */

struct keel_policy_state {
    const keel_host *host; /* valid until destroy returns */
    int64_t n, recent;
};

static keel_status create(const keel_host *host, const keel_geometry *geometry,
                          const keel_param *const *values, uint32_t n_values, uint64_t seed,
                          keel_policy_needs *needs, keel_policy_state **out) {
    keel_policy_needs mine = {.h = KEEL_HEADER(keel_policy_needs)};
    keel_policy_state *state;
    (void)geometry, (void)seed;
    if (n_values != 2) {
        host->set_error(host, KEEL_E_INTERNAL, "expected 2 parameters");
        return KEEL_E_INTERNAL;
    }
    state = host->alloc(host, sizeof *state, sizeof(void *));
    if (state == NULL) return KEEL_E_OUT_OF_MEMORY;
    state->host = host;
    state->n = values[0]->i;
    state->recent = values[1]->i;

    mine.needs = KEEL_NEED_POSITIONS; /* the core provides the positions and no other input */
    mine.granularity =
        KEEL_KEEP_TOKEN; /* all layers and heads keep the same slots, so decide() is called once */
    mine.output = KEEL_OUTPUT_SCORES;
    keel_emit(needs, &mine, sizeof mine); /* copies as many bytes as the host's struct has */
    *out = state;
    return KEEL_OK;
}

static void destroy(keel_policy_state *state) {
    if (state != NULL) state->host->free(state->host, state);
}

static keel_status decide(keel_policy_state *state, const keel_policy_input *input,
                          keel_policy_decision *decision) {
    int32_t slot;
    for (slot = 0; slot < input->lengths[0]; ++slot) {
        const int64_t position = input->positions[slot];
        const int64_t age = input->next_position - 1 - position;
        float score = position % state->n == 0 ? 2.0f : 1.0f;
        if (age < state->recent) score = 3.0f;
        decision->scores[slot] = score; /* of equal scores, the core keeps the newer slot */
    }
    return KEEL_OK;
}

static keel_status reset(keel_policy_state *state) {
    (void)state; /* the state does not change from step to step */
    return KEEL_OK;
}

/* fork, truncate, save and load are NULL, because the state has nothing that a new state does
 * not have. */
static const keel_policy table = {.h = KEEL_HEADER(keel_policy),
                                  .create = create,
                                  .destroy = destroy,
                                  .decide = decide,
                                  .reset = reset};

static const keel_plugin plugin = {.h = KEEL_HEADER(keel_plugin),
                                   .min_host_abi = KEEL_ABI_VERSION,
                                   .kind = KEEL_PLUGIN_POLICY,
                                   /* the id is the file's name without .so */
                                   .id = "keep_every_nth",
                                   .version = "1.0.0",
                                   .vendor = "An example",
                                   .license = "MIT",
                                   .doc = "Keeps recent tokens, and every n-th of the older ones.",
                                   .build_info = __VERSION__,
                                   .sanitizer = KEEL_SANITIZER_HERE,
                                   .n_params = 2,
                                   .params = params,
                                   .vtable = &table};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t host_abi_version) {
    (void)host_abi_version; /* min_host_abi already excludes older hosts */
    return &plugin;
}
