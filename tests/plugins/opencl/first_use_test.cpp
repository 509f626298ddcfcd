// Ops that are called before anything was planned or measured.
#include "pocl.hpp"

#include "support/gpu_rig.hpp"

using namespace keel;
using namespace keel::conformance;
using namespace keel::test;

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
    const std::vector<float> q = numbers(heads * dim, 37);
    std::vector<float> out(slots);
    const OneHeadCache cache(side, numbers(slots * dim, 53), dim, block_slots);
    keel_buffer *queries = side.upload(q.data(), 4 * q.size()),
                *sums = side.upload(out.data(), 4 * out.size());
    const keel_tensor qt = tensor_of(queries, {1, heads, dim}), st = tensor_of(sums, {1, slots});
    keel_scores reduce = {KEEL_HEADER(keel_scores)};
    reduce.out = &st;
    reduce.reduce_queries = reduce.reduce_group = KEEL_REDUCE_SUM;
    keel_attention_scores_args a = {};
    a.h = KEEL_HEADER(keel_attention_scores_args);
    a.features = KEEL_SCORES_CAUSAL;
    a.q = &qt;
    a.kv = &cache.view;
    a.scores = &reduce;
    a.scale = 0.2F;
    REQUIRE(side.table().attention_scores(side.ctx(), &a) == KEEL_OK);
    side.read(sums, out.data(), 4 * out.size());
    side.destroy(queries);
    side.destroy(sums);
    return out;
}

} // namespace

// Measuring runs attention, which wants more scratch than scores do.
TEST_CASE("scores are right where they are the first of all ops and have the forms measured") {
    const Library opencl(KEEL_OPENCL_PLUGIN);
    if (no_device(opencl)) return;
    const Library reference("reference"); // outlives its side
    Side side(opencl, {{"cache", "off"}}), oracle(reference, {});
    const std::vector<float> scores = scores_of(side), expected = scores_of(oracle);
    for (size_t i = 0; i < scores.size(); ++i)
        CHECK(scores[i] == Approx(expected[i]).margin(1e-5));
}
