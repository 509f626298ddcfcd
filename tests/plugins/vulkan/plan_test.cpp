// Tests that the numbers in a plan are valid for the calls that use the plan.
#include "support/gpu_rig.hpp"

using namespace keel;
using namespace keel::conformance;
using namespace keel::test;

// A normal chunk of a prompt has enough tiles. For the last, short chunk, the slots are split, and
// the parts take memory.
TEST_CASE("attention with fewer queries takes no more memory than was planned") {
    const Library vulkan(KEEL_VULKAN_PLUGIN);
    need_device(vulkan);
    constexpr int64_t most = 512, dim = 32, slots = 2048, block = 64;
    Side side(vulkan, {});
    const std::vector<float> rows(slots * dim, 0.5F);
    const OneHeadCache cache(side, rows, dim, block);
    keel_buffer *queries = side.upload(rows.data(), 4 * rows.size());
    keel_tensor q = tensor_of(queries, {most, 1, dim});
    keel_attention_args a = {};
    a.h = KEEL_HEADER(keel_attention_args);
    a.features = KEEL_ATTENTION_CAUSAL;
    a.q = a.out = &q;
    a.kv = &cache.view;
    a.scale = 0.2F;
    keel_plan *plan = nullptr;
    REQUIRE(side.table().op_plan(side.ctx(), KEEL_OP_ATTENTION,
                                 reinterpret_cast<const keel_op_args *>(&a), &plan) == KEEL_OK);
    const uint64_t held = side.bytes_held();
    for (const int64_t m : {int64_t{5}, int64_t{1}, int64_t{17}, int64_t{100}}) {
        q.shape[0] = m;
        CHECK(side.table().attention(side.ctx(), &a) == KEEL_OK);
        REQUIRE(side.finish() == KEEL_OK);
        CHECK(side.bytes_held() == held);
    }
    side.table().plan_destroy(side.ctx(), plan);
    side.destroy(queries);
}
