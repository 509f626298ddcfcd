// Tests of tensors as kernels address them, with 32 bits. A tensor that exceeds 32 bits is refused,
// so addresses never wrap around.
#include "gpu/view.hpp"

#include <catch2/catch.hpp>

namespace {

keel_tensor tensor(uint64_t offset, int64_t rows, int64_t cols, int64_t stride) {
    keel_tensor t = {KEEL_HEADER(keel_tensor)};
    t.offset = offset;
    t.dtype = KEEL_DTYPE_F32;
    t.rank = 2;
    t.shape[0] = rows;
    t.shape[1] = cols;
    t.stride[0] = stride;
    return t;
}

bool is_taken(const keel_tensor &t) {
    try {
        keel_gpu::view_of(nullptr, &t, "t");
        return true;
    } catch (const keel_gpu::Refusal &refusal) {
        CHECK(refusal.status == KEEL_E_UNSUPPORTED);
        return false;
    }
}

} // namespace

TEST_CASE("a view cannot have elements beyond 2^32 units") {
    constexpr int64_t big = int64_t{1} << 20,
                      row = 4 * 4096; // 2^20 rows of 4096 floats: 2^32 units
    CHECK(is_taken(tensor(0, big, 4096, row)));
    CHECK_FALSE(is_taken(tensor(4, big, 4096, row)));
    CHECK_FALSE(is_taken(tensor(0, big + 1, 4096, row)));
    CHECK(is_taken(tensor(0, 0, 4096, row)));
    CHECK(is_taken(tensor(0, 1, 4096, row << 10)));
    CHECK_FALSE(is_taken(tensor(0, INT64_C(0xFFFFFFFF), 1, 4 * INT64_C(0xFFFFFFF))));
    CHECK(is_taken(tensor(64, 5, 4, -16)));
    CHECK_FALSE(is_taken(tensor(32, 5, 4, -16))); // the view begins before the buffer
}
