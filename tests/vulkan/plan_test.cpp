// What a plan settles holds for the calls that follow it.
#include "conformance/side.hpp"

#include <catch2/catch.hpp>

#include <numeric>
#include <vector>

using namespace keel;
using namespace keel::conformance;

// A chunk of a prompt has tiles enough; the last, short one is split over the cache's length, which takes memory for the parts.
TEST_CASE("attention with fewer queries takes no more memory than was planned") {
    const Library vulkan(KEEL_VULKAN_PLUGIN);
    test::TestHost host;
    uint32_t n = 0;
    REQUIRE(vulkan.table().device_count(host.table(), &n) == KEEL_OK);
    if (n == 0) {
        WARN("no Vulkan device here");
        return;
    }
    constexpr int64_t most = 512, dim = 32, slots = 2048, block = 64;
    Side side(vulkan, {});
    const std::vector<float> rows(slots * dim, 0.5F);
    std::vector<int32_t> table(slots / block), positions(slots);
    std::iota(table.begin(), table.end(), 0);
    std::iota(positions.begin(), positions.end(), 0);
    const int32_t length = slots;
    const auto upload = [&](const auto &values) { return side.upload(values.data(), 4 * values.size()); };
    keel_buffer *buffers[] = {upload(rows), upload(rows), upload(table), side.upload(&length, 4),
                              upload(positions)};
    const auto tensor = [](keel_buffer *buffer, keel_dtype dtype, std::vector<int64_t> shape) {
        keel_tensor t = {KEEL_HEADER(keel_tensor)};
        t.buffer = buffer;
        t.dtype = dtype;
        t.rank = static_cast<uint32_t>(shape.size());
        int64_t stride = 4;
        for (size_t i = shape.size(); i-- > 0; stride *= shape[i]) {
            t.shape[i] = shape[i];
            if (i + 1 < shape.size()) t.stride[i] = stride;
        }
        return t;
    };
    keel_tensor q = tensor(buffers[0], KEEL_DTYPE_F32, {most, 1, dim});
    const keel_tensor k = tensor(buffers[1], KEEL_DTYPE_F32, {slots / block, block, dim}),
                      tables = tensor(buffers[2], KEEL_DTYPE_I32, {1, slots / block}),
                      lengths = tensor(buffers[3], KEEL_DTYPE_I32, {1}),
                      places = tensor(buffers[4], KEEL_DTYPE_I32, {1, slots});
    keel_kv_view kv = {KEEL_HEADER(keel_kv_view)};
    kv.k = kv.v = &k;
    kv.block_table = &tables;
    kv.lengths = &lengths;
    kv.positions = &places;
    kv.block_slots = block;
    kv.kv_heads = 1;
    kv.max_length = slots;
    keel_attention_args a = {};
    a.h = KEEL_HEADER(keel_attention_args);
    a.features = KEEL_ATTENTION_CAUSAL;
    a.q = a.out = &q;
    a.kv = &kv;
    a.scale = 0.2F;
    keel_plan *plan = nullptr;
    REQUIRE(side.table().op_plan(side.ctx(), KEEL_OP_ATTENTION, reinterpret_cast<const keel_op_args *>(&a),
                                 &plan) == KEEL_OK);
    const uint64_t held = side.bytes_held();
    for (const int64_t m : {int64_t{5}, int64_t{1}, int64_t{17}, int64_t{100}}) {
        q.shape[0] = m;
        CHECK(side.table().attention(side.ctx(), &a) == KEEL_OK);
        REQUIRE(side.finish() == KEEL_OK);
        CHECK(side.bytes_held() == held);
    }
    side.table().plan_destroy(side.ctx(), plan);
    for (keel_buffer *buffer : buffers)
        side.destroy(buffer);
}
