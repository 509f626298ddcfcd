// Ops that are called before anything was planned or measured.
#include "pocl.hpp"

#include "conformance/side.hpp"

#include <catch2/catch.hpp>

#include <vector>

using namespace keel;
using namespace keel::conformance;

namespace {

constexpr int64_t heads = 4, dim = 32, slots = 48, block_slots = 16;

std::vector<float> numbers(size_t n, size_t step) {
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i)
        values[i] = static_cast<float>(i * step % 101) / 50 - 1;
    return values;
}

// Scores of one query over a cache of one KV head.
std::vector<float> scores_of(Side &side) {
    const std::vector<float> q = numbers(heads * dim, 37), k = numbers(slots * dim, 53);
    const std::vector<int32_t> table = {0, 1, 2};
    std::vector<int32_t> positions(slots);
    for (int32_t i = 0; i < slots; ++i)
        positions[static_cast<size_t>(i)] = i;
    const int32_t length = slots;
    std::vector<float> out(slots);
    const auto upload = [&](const auto &values) { return side.upload(values.data(), 4 * values.size()); };
    keel_buffer *buffers[] = {upload(q),         upload(k),  upload(table), side.upload(&length, 4),
                              upload(positions), upload(out)};
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
    const keel_tensor qt = tensor(buffers[0], KEEL_DTYPE_F32, {1, heads, dim}),
                      kt = tensor(buffers[1], KEEL_DTYPE_F32, {slots / block_slots, block_slots, dim}),
                      tt = tensor(buffers[2], KEEL_DTYPE_I32, {1, slots / block_slots}),
                      lt = tensor(buffers[3], KEEL_DTYPE_I32, {1}),
                      pt = tensor(buffers[4], KEEL_DTYPE_I32, {1, slots}),
                      st = tensor(buffers[5], KEEL_DTYPE_F32, {1, slots});
    keel_kv_view kv = {KEEL_HEADER(keel_kv_view)};
    kv.k = kv.v = &kt;
    kv.block_table = &tt;
    kv.lengths = &lt;
    kv.positions = &pt;
    kv.block_slots = block_slots;
    kv.kv_heads = 1;
    kv.max_length = slots;
    keel_scores reduce = {KEEL_HEADER(keel_scores)};
    reduce.out = &st;
    reduce.reduce_queries = reduce.reduce_group = KEEL_REDUCE_SUM;
    keel_attention_scores_args a = {};
    a.h = KEEL_HEADER(keel_attention_scores_args);
    a.features = KEEL_SCORES_CAUSAL;
    a.q = &qt;
    a.kv = &kv;
    a.scores = &reduce;
    a.scale = 0.2F;
    REQUIRE(side.table().attention_scores(side.ctx(), &a) == KEEL_OK);
    side.read(buffers[5], out.data(), 4 * out.size());
    for (keel_buffer *buffer : buffers)
        side.destroy(buffer);
    return out;
}

} // namespace

// Measuring runs attention, which wants more scratch than scores do.
TEST_CASE("scores are right where they are the first of all ops and have the forms measured") {
    const Library opencl(KEEL_OPENCL_PLUGIN);
    test::TestHost host;
    uint32_t n = 0;
    REQUIRE(opencl.table().device_count(host.table(), &n) == KEEL_OK);
    if (n == 0) {
        WARN("no OpenCL device here");
        return;
    }
    Side side(opencl, {{"cache", "off"}}), oracle(Library("reference"), {});
    const std::vector<float> scores = scores_of(side), expected = scores_of(oracle);
    for (size_t i = 0; i < scores.size(); ++i)
        CHECK(scores[i] == Approx(expected[i]).margin(1e-5));
}
