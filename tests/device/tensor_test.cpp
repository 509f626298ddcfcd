#include "device/tensor.hpp"
#include "support/error_text.hpp"
#include "support/wrapping_backend.hpp"

#include <catch2/catch.hpp>

#include <numeric>

using namespace keel;
using namespace keel::test;

TEST_CASE("rows and columns of a tensor are views of the same memory") {
    WrappingBackend w;
    const auto device = w.open();
    const Tensor t = Tensor::allocate(*device, KEEL_DTYPE_F32, {3, 4});
    std::vector<float> values(12);
    std::iota(values.begin(), values.end(), 0.0F);
    t.write(values.data());
    CHECK(t.rows(1, 2).read<float>() == std::vector<float>{4, 5, 6, 7, 8, 9, 10, 11});
    const Tensor c = t.columns(1, 2);
    CHECK(c.offset() == 4);
    CHECK(c.c()->stride[0] == 16);
    CHECK_FALSE(is_contiguous(*c.c()));
    CHECK(extent_bytes(*c.c()) == 2 * 16 + 8);
    CHECK(c.bytes() == 24);
    CHECK(c.rows(2, 1).read<float>() == std::vector<float>{9, 10}); // one row is contiguous
    CHECK(t.rows(1, 0).bytes() == 0);
    CHECK(extent_bytes(*t.rows(1, 0).c()) == 0);
    error_text([&] { c.read<float>(); }, ErrorKind::internal);
    error_text([&] { c.write(values.data()); }, ErrorKind::internal);
}

TEST_CASE("views that exceed a tensor are refused") {
    const Tensor t = Tensor::shape(KEEL_DTYPE_F32, {3, 4}), none;
    for (const auto &[begin, n] :
         {std::pair<int64_t, int64_t>{-1, 1}, {0, -1}, {0, 4}, {3, 1}, {4, 0}, {1, INT64_MAX}}) {
        INFO(begin << " " << n);
        error_text([&, b = begin, m = n] { t.rows(b, m); }, ErrorKind::internal);
        error_text([&, b = begin, m = n] { none.rows(b, m); }, ErrorKind::internal);
    }
    error_text([&] { t.columns(1, 4); }, ErrorKind::internal);
    error_text([&] { t.columns(1, INT64_MAX); }, ErrorKind::internal);
    error_text([&] { none.columns(0, 0); }, ErrorKind::internal);
    error_text([&] { none.reshape({1}); }, ErrorKind::internal);
    const Tensor q = Tensor::shape(KEEL_DTYPE_Q8_0, {2, 64});
    CHECK(q.columns(32, 32).offset() == 34);
    error_text([&] { q.columns(16, 32); }, ErrorKind::internal);
    error_text([&] { q.columns(0, 16); }, ErrorKind::internal);
}

TEST_CASE("an impossible or too large shape is refused") {
    CHECK(Tensor().c() == nullptr);
    CHECK(Tensor().bytes() == 0);
    error_text([] { Tensor::shape(KEEL_DTYPE_F32, {INT64_MAX / 2, 4}); }, ErrorKind::resource);
    error_text(
        [] {
            Tensor::shape(KEEL_DTYPE_F32, {1 << 30, 1 << 30, 1 << 30});
        },
        ErrorKind::resource);
    error_text([] { Tensor::shape(KEEL_DTYPE_F32, {-1, 4}); }, ErrorKind::internal);
    error_text([] { Tensor::shape(KEEL_DTYPE_F32, {}); }, ErrorKind::internal);
    error_text([] { Tensor::shape(KEEL_DTYPE_F32, {1, 1, 1, 1, 1}); }, ErrorKind::internal);
    error_text([] { Tensor::shape(KEEL_DTYPE_Q4_0, {2, 33}); }, ErrorKind::internal);
    error_text([] { Tensor::shape(KEEL_DTYPE_NONE, {2}); }, ErrorKind::internal);
    error_text([] { Tensor::shape(12345, {2}); }, ErrorKind::internal);
    float value = 0;
    error_text([&] { Tensor::shape(KEEL_DTYPE_F32, {1}).write(&value); }, ErrorKind::internal);
    error_text([&] { Tensor::shape(KEEL_DTYPE_F32, {1}).read(&value); }, ErrorKind::internal);
    error_text([&] { Tensor().read(&value); }, ErrorKind::internal);
    error_text([] { Tensor(nullptr, 0, KEEL_DTYPE_F32, {1}); }, ErrorKind::internal);
}

TEST_CASE("a tensor must be inside its buffer") {
    WrappingBackend w;
    const auto device = w.open();
    const BufferPtr buffer = device->allocate(64);
    CHECK(Tensor(buffer, 32, KEEL_DTYPE_F32, {8}).bytes() == 32);
    error_text([&] { Tensor(buffer, 36, KEEL_DTYPE_F32, {8}); }, ErrorKind::internal);
    error_text([&] { Tensor(buffer, 65, KEEL_DTYPE_F32, {0}); }, ErrorKind::internal);
    error_text([&] { Tensor(buffer, UINT64_MAX, KEEL_DTYPE_F32, {8}); }, ErrorKind::internal);
}

TEST_CASE("reshape keeps the elements, and can split rows with any stride") {
    const Tensor t = Tensor::shape(KEEL_DTYPE_F32, {4, 6});
    CHECK(t.reshape({24}).dim(0) == 24);
    CHECK(t.reshape({2, 2, 3, 2}).c()->stride[0] == 48);
    const Tensor heads = t.columns(2, 4).reshape({4, 2, 2});
    CHECK(heads.c()->stride[0] == 24);
    CHECK(heads.c()->stride[1] == 8);
    CHECK(heads.offset() == 8);
    error_text([&] { t.reshape({5, 5}); }, ErrorKind::internal);
    error_text([&] { t.columns(2, 4).reshape({16}); }, ErrorKind::internal);
    error_text([&] { heads.reshape({4, 4}); }, ErrorKind::internal);
    error_text(
        [&] {
            Tensor::shape(KEEL_DTYPE_Q8_0, {2, 64}).reshape({8, 16});
        },
        ErrorKind::internal);
    // After a reshape to rank 1, nothing of the old shape is left.
    const Tensor flat = t.reshape({24});
    CHECK(flat.c()->shape[1] == 0);
    CHECK(flat.c()->stride[1] == 0);
}
