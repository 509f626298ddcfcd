#include "eval/compare/tensor_values.hpp"

#include "device/tensor.hpp"

#include <catch2/catch.hpp>
#include <limits>
#include <numeric>

using namespace keel;

namespace {

std::shared_ptr<Device> reference() {
    return Device::open_reference(std::make_shared<HostServices>(1));
}

} // namespace

TEST_CASE("strided views are read and written without changing the gaps") {
    const auto device = reference();
    const Tensor whole = Tensor::allocate(*device, KEEL_DTYPE_F32, {3, 8});
    std::vector<float> numbers(24);
    std::iota(numbers.begin(), numbers.end(), 0.0F);
    whole.write(numbers.data());
    const Tensor part = whole.columns(4, 4).reshape({3, 2, 2});
    TensorValues values = read_values(*device, *part.c(), "part");
    CHECK(values.shape == std::vector<int64_t>{3, 2, 2});
    CHECK(values.values == std::vector<float>{4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23});
    CHECK(values.place(7) == "[1, 1, 1]");
    for (float &value : values.values) value = -value;
    write_values(*device, *part.c(), values);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i % 8 >= 4 ? -numbers[i] : numbers[i];
    CHECK(whole.read<float>() == numbers);
    CHECK(read_dense(*device, *part.c()).size() == 12 * sizeof(float));
}

TEST_CASE("values of coarse dtypes are read as numbers and rounded when written") {
    const auto device = reference();
    const Tensor halves = Tensor::allocate(*device, KEEL_DTYPE_F16, {2, 2});
    TensorValues values;
    values.shape = {2, 2};
    values.values = {1, 1.0F / 3, -65504, 0};
    write_values(*device, *halves.c(), values);
    const TensorValues back = read_values(*device, *halves.c(), "x");
    CHECK(back.dtype == KEEL_DTYPE_F16);
    CHECK(back.values[0] == 1);
    CHECK(back.values[1] == 0.333251953125F);
    CHECK(back.values[2] == -65504);
    const Tensor ints = Tensor::allocate(*device, KEEL_DTYPE_I32, {3});
    const int32_t ids[3] = {7, -1, 4095};
    ints.write(ids);
    CHECK(read_values(*device, *ints.c(), "ids").values == std::vector<float>{7, -1, 4095});
    CHECK(read_ints(*device, *ints.c()) == std::vector<int32_t>{7, -1, 4095});
}

TEST_CASE("rows of a cache are found by its blocks") {
    const auto device = reference();
    // Blocks have 2 slots. Head 0 has blocks 3 and 0. Head 1 has only block 1.
    const Tensor k = Tensor::allocate(*device, KEEL_DTYPE_F32, {4, 2, 2});
    std::vector<float> numbers(16);
    std::iota(numbers.begin(), numbers.end(), 0.0F);
    k.write(numbers.data());
    const Tensor table = Tensor::allocate(*device, KEEL_DTYPE_I32, {2, 2});
    const int32_t blocks[4] = {3, 0, 1, -1};
    table.write(blocks);
    keel_kv_view view = {KEEL_HEADER(keel_kv_view)};
    view.k = view.v = k.c();
    view.block_table = table.c();
    view.block_slots = 2;
    view.kv_heads = 2;
    TensorValues rows = read_kv(*device, view, true, {{1, 3}, {0, 3}});
    CHECK(rows.rows == std::vector<std::pair<int64_t, int64_t>>{
                           {0, 1}, {0, 2}, {1, 0}, {1, 1}}); // slot 2 of head 1 has no block
    CHECK(rows.values == std::vector<float>{14, 15, 0, 1, 4, 5, 6, 7});
    CHECK(rows.place(5) == "head 1, slot 0, element 1");
    rows.values[2] = 100;
    write_kv(*device, view, true, rows);
    numbers[0] = 100;
    CHECK(k.read<float>() == numbers);
}
