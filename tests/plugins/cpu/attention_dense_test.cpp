// What the conformance program cannot know about this backend's dense attention: how much memory it
// takes, and that a long call needs no array of queries x keys.
#include "attention_rig.hpp"
#include "conformance/attention_dense_scene.hpp"

using namespace keel;
using namespace keel::conformance;

namespace {

const keel_dense &cpu_dense() {
    return *static_cast<const keel_dense *>(
        test::cpu_library().plugin().get_extension(KEEL_EXT_ATTENTION_DENSE));
}

// Bytes that the context holds for both passes of n queries and n keys, besides the tensors.
uint64_t scratch_of(int64_t n) {
    Side side(test::cpu_library(), {}, 2);
    Rng rng(1);
    const DenseScene d(
        {.rows = n, .keys = n, .heads = 1, .dim = 16, .v_dim = 16, .features = KEEL_DENSE_CAUSAL},
        rng);
    Stage stage(side, d.scene, {});
    const uint64_t tensors = side.bytes_held();
    REQUIRE(d.forward(cpu_dense(), stage, false) == KEEL_OK);
    REQUIRE(d.backward(cpu_dense(), stage, false) == KEEL_OK);
    return side.bytes_held() - tensors;
}

} // namespace

TEST_CASE("the scratch memory of dense attention grows linearly with the length") {
    const uint64_t small = scratch_of(512), large = scratch_of(4096), larger = scratch_of(8192);
    CHECK(small > 0);
    // Each row needs a number, and up to eight parts of its gradient: rows of 16 numbers.
    constexpr uint64_t row_bytes = 4 * (1 + 8 * 16);
    CHECK(large - small <= (4096 - 512) * row_bytes);
    CHECK(larger - large <= 4096 * row_bytes);
}
