// A policy in C++ whose functions throw. sdk.hpp converts each exception to a status and a message.
#include <keel/sdk.hpp>

#include <stdexcept>

struct keel_policy_state {
    const keel_host *host;
    keel_policy_needs needs;
};

static const keel_host *host_of(const keel_policy_state *state) { return state->host; }

static keel_status create(const keel_host *host, const keel_geometry *geometry,
                          const keel_param *const *params, uint32_t n_params, uint64_t seed,
                          keel_policy_needs *needs, keel_policy_state **out) {
    const keel::sdk::Params given(params, n_params);
    if (given.is("mode", "unknown_key")) static_cast<void>(given.integer("not_in_the_table"));
    if (given.is("mode", "bad_alloc")) throw std::bad_alloc();
    if (given.is("mode", "int")) throw 7;
    if (geometry->layers == 0)
        throw keel::sdk::Failure(KEEL_E_INVALID_ARG, "%u layers, seed %u", 0u,
                                 static_cast<unsigned>(seed));
    auto state = std::make_unique<keel_policy_state>();
    state->host = host;
    state->needs = {KEEL_HEADER(keel_policy_needs),
                    0,
                    KEEL_KEEP_LAYER,
                    KEEL_OUTPUT_SCORES,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    nullptr};
    keel_emit(needs, &state->needs, sizeof state->needs);
    *out = state.release();
    return KEEL_OK;
}

static void destroy(keel_policy_state *state) { delete state; }

// Throws on one worker of a parallel region.
static keel_status decide(keel_policy_state *state, const keel_policy_input *input,
                          keel_policy_decision *decision) {
    return keel::sdk::parallel_for(state->host, input->stride, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            if (i == input->next_position) throw std::runtime_error("slot is unwell");
            decision->scores[i] = static_cast<float>(i);
        }
    });
}

static keel_status reset(keel_policy_state *) { throw std::runtime_error("no way back"); }

static const char *const modes[] = {"fine", "unknown_key", "bad_alloc", "int", nullptr};
static const keel_param_spec mode = KEEL_CHOICE_PARAM("mode", "fine", modes, "what create throws");
static const keel_param_spec *const rows[] = {&mode};

static const keel_policy table = {KEEL_HEADER(keel_policy),
                                  keel::sdk::slot<create>,
                                  keel::sdk::slot<destroy>,
                                  keel::sdk::slot<decide>,
                                  keel::sdk::slot<reset>,
                                  nullptr,
                                  nullptr,
                                  nullptr,
                                  nullptr};

static const keel_plugin plugin = {KEEL_HEADER(keel_plugin),
                                   KEEL_ABI_VERSION,
                                   KEEL_PLUGIN_POLICY,
                                   "throwing_slots",
                                   "1.0.0",
                                   "Keel's tests",
                                   "MIT",
                                   "Throws.",
                                   "test",
                                   0,
                                   KEEL_SANITIZER_HERE,
                                   1,
                                   rows,
                                   &table,
                                   nullptr};

const keel_plugin *KEEL_CALL keel_plugin_query_v0(uint32_t) { return &plugin; }
