// Tests of caches that are saved and loaded: heads of different length, several blocks, and a
// policy that has a state.
#include "kv/rig.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <numeric>

using namespace keel;
using namespace keel::test;

namespace {

// Keeps every second slot, and one more in the second head. Its state is the number of its calls,
// which shifts the kept slots.
struct CountingPolicy {
    int32_t asked = 0;
};

keel_policy counting_policy(bool can_save) {
    keel_policy t = {KEEL_HEADER(keel_policy)};
    t.create = [](const keel_host *, const keel_geometry *, const keel_param *const *, uint32_t,
                  uint64_t, keel_policy_needs *needs, keel_policy_state **out) -> keel_status {
        keel_policy_needs mine = {KEEL_HEADER(keel_policy_needs)};
        mine.granularity = KEEL_KEEP_HEAD_RAGGED;
        mine.output = KEEL_OUTPUT_KEEP;
        keel_emit(needs, &mine, sizeof mine);
        *out = reinterpret_cast<keel_policy_state *>(new CountingPolicy);
        return KEEL_OK;
    };
    t.destroy = [](keel_policy_state *state) { delete reinterpret_cast<CountingPolicy *>(state); };
    t.decide = [](keel_policy_state *state, const keel_policy_input *in,
                  keel_policy_decision *out) -> keel_status {
        auto *self = reinterpret_cast<CountingPolicy *>(state);
        ++self->asked;
        for (uint32_t h = 0; h < in->kv_heads; ++h) {
            int32_t n = 0;
            for (int32_t s = self->asked % 2; s < in->lengths[h]; s += h == 0 ? 2 : 3)
                out->keep[h * in->stride + n++] = s;
            out->keep_count[h] = n;
        }
        return KEEL_OK;
    };
    t.fork = [](const keel_policy_state *state, keel_policy_state **out) -> keel_status {
        *out = reinterpret_cast<keel_policy_state *>(
            new CountingPolicy(*reinterpret_cast<const CountingPolicy *>(state)));
        return KEEL_OK;
    };
    if (!can_save) return t;
    t.save = [](const keel_policy_state *state, void *data, uint64_t *size) -> keel_status {
        if (data != nullptr) std::memcpy(data, state, sizeof(CountingPolicy));
        *size = sizeof(CountingPolicy);
        return KEEL_OK;
    };
    t.load = [](keel_policy_state *state, const void *data, uint64_t size) -> keel_status {
        if (size != sizeof(CountingPolicy)) return KEEL_E_INVALID_ARG;
        std::memcpy(static_cast<void *>(state), data, size);
        return KEEL_OK;
    };
    return t;
}

KvShape ragged_shape(keel_dtype dtype) {
    KvShape shape = kv_shape(128, dtype);
    shape.heads = shape.kv_heads; // one query head for each KV head
    return shape;
}

struct StateRun {
    StateRun(const std::string &device, const KvShape &shape, const keel_policy &policy)
        : rig(device, shape) {
        CacheConfig config;
        config.policy = {"counting", &policy, nullptr, 0};
        config.budget_unit = BudgetUnit::tokens;
        config.budget = 40;
        config.slack = 4;
        plan = std::make_unique<PolicySetup>(rig.executor(), shape, rig.executor().device().host(),
                                             config);
        manager = std::make_unique<CacheManager>(*plan, rig.executor().placement());
    }
    void step(int64_t n, StepKind kind) {
        manager->before_append(n, kind);
        const auto next = manager->next_positions(n);
        const std::vector<int32_t> positions(next.begin(), next.end());
        std::vector<int64_t> tokens(static_cast<size_t>(n));
        std::iota(tokens.begin(), tokens.end(), manager->tokens_seen());
        manager->append(n);
        rig.write(manager->cache(), tokens, positions);
        manager->after_step(kind);
    }
    Rig rig;
    std::unique_ptr<PolicySetup> plan;
    std::unique_ptr<CacheManager> manager;
};

void check_same(StateRun &a, StateRun &b) {
    for (uint32_t l = 0; l < 2; ++l) {
        for (uint32_t h = 0; h < 2; ++h) {
            const auto x = a.manager->cache().positions(l, h),
                       y = b.manager->cache().positions(l, h);
            REQUIRE(std::vector(x.begin(), x.end()) == std::vector(y.begin(), y.end()));
            CHECK(b.rig.device_positions(b.manager->cache(), l, h) ==
                  std::vector(y.begin(), y.end()));
        }
        const std::vector<float> query = a.rig.tokens().query(3, 200);
        CHECK(a.rig.attention(a.manager->cache(), l, query) ==
              b.rig.attention(b.manager->cache(), l, query));
    }
    CHECK(a.manager->tokens_seen() == b.manager->tokens_seen());
    CHECK(a.manager->evictions() == b.manager->evictions());
}

} // namespace

TEST_CASE("A saved cache can be loaded in another cache, and evicts as before") {
    const keel_policy policy = counting_policy(true);
    for (const std::string &device : kv_devices()) {
        for (const keel_dtype dtype : {KEEL_DTYPE_F32, KEEL_DTYPE_Q8_0}) {
            INFO(device << " " << keel_dtype_name(dtype));
            StateRun a(device, ragged_shape(dtype), policy), b(device, ragged_shape(dtype), policy);
            a.step(60, StepKind::prefill_end);
            for (int i = 0; i < 30; ++i) a.step(1, StepKind::decode);
            REQUIRE(a.manager->evictions() > 1);
            REQUIRE(a.manager->cache().length(0, 0) != a.manager->cache().length(0, 1));
            Memory saved;
            a.manager->save(saved);
            b.step(17, StepKind::prefill_end); // loading replaces the current content
            StateReader in(saved.bytes, "state");
            b.manager->load(in);
            CHECK(in.left() == 0);
            check_same(a, b);
            CHECK(b.manager->cache().arena().bytes_in_use() ==
                  a.manager->cache().arena().bytes_in_use());
            for (int i = 0; i < 40; ++i) {
                a.step(1, StepKind::decode);
                b.step(1, StepKind::decode);
            }
            check_same(a, b);

            // A damaged state leaves the cache empty.
            for (size_t cut = 0; cut < saved.bytes.size(); cut += saved.bytes.size() / 40 + 1) {
                StateReader broken(std::span(saved.bytes).first(cut), "state");
                error_text([&] { b.manager->load(broken); });
                CHECK(b.manager->tokens_seen() == 0);
                CHECK(b.manager->cache().bytes_in_use() == 0);
            }
        }
    }
}

TEST_CASE("A policy that has a state but cannot save it is refused by name") {
    const keel_policy policy = counting_policy(false);
    StateRun run("reference", ragged_shape(KEEL_DTYPE_F32), policy);
    run.step(10, StepKind::prefill_end);
    Memory saved;
    const std::string text = error_text([&] { run.manager->save(saved); }, ErrorKind::plugin);
    CHECK(text.find("policy counting") != std::string::npos);
}

TEST_CASE("A cache that is too large for kv.max_mib or the context is refused with the key") {
    const keel_policy policy = counting_policy(true);
    StateRun a("reference", ragged_shape(KEEL_DTYPE_F32), policy);
    a.step(40, StepKind::prefill_chunk);
    Memory saved;
    a.manager->save(saved);
    KvShape small = ragged_shape(KEEL_DTYPE_F32);
    small.max_slots = 46;
    small.max_bytes = 16 * small.block_bytes();
    KvShape shorter = ragged_shape(KEEL_DTYPE_F32);
    shorter.max_slots = 32;
    const auto refusal = [&](const KvShape &shape) {
        Rig rig("reference", shape);
        KvCache cache(rig.executor(), shape, rig.executor().placement());
        StateReader in(saved.bytes, "state");
        in.take(8 * 8, "the manager's numbers");
        return error_text([&] { cache.load(in, 40); });
    };
    CHECK(refusal(small).find("kv.max_mib") != std::string::npos);
    CHECK(refusal(shorter).find("model.context = 32") != std::string::npos);
}
