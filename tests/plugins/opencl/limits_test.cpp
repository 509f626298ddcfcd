// Tests of waits, of plans and of memory that the host can see, with a driver that enforces the
// rules (fault_layer.cpp).
#include "failing_driver.hpp"

using namespace keel;
using namespace keel::conformance;
using namespace keel::test;

namespace {

template <class Args> void plan_and_run(Side &side, keel_op op, const Args &args) {
    INFO(op_name(op));
    keel_plan *plan = nullptr;
    fail("");
    REQUIRE(side.table().op_plan(side.ctx(), op, reinterpret_cast<const keel_op_args *>(&args),
                                 &plan) == KEEL_OK);
    fail("clCreateKernel 1+ -46");
    CHECK(call_op(side.table(), op, side.ctx(), &args) == KEEL_OK);
    fail("clBuildProgram 1+ -11");
    CHECK(call_op(side.table(), op, side.ctx(), &args) == KEEL_OK);
    fail("");
    side.table().plan_destroy(side.ctx(), plan);
}

} // namespace

TEST_CASE(
    "a device that does not answer counts as lost after wait_seconds, and its context closes") {
    need_device(library());
    const DeviceKeeps keeps; // the driver never calls the callback
    Side side(library(), {{"wait_seconds", "1"}});
    float value = 1;
    keel_buffer *buffer = side.upload(&value, 4);
    REQUIRE(doubles(side, buffer) == KEEL_OK);
    fail("clGetEventInfo 1+ 0");
    CHECK(side.table().buffer_read(side.ctx(), buffer, 0, &value, 4) == KEEL_E_DEVICE_LOST);
    CHECK(side.error().find("wait_seconds") != std::string::npos);
    // only during the time in which the driver could have compiled kernels
    CHECK(side.host().logged("first work of") == 1);
    fail("");
    uint64_t ticket = 0;
    CHECK(doubles(side, buffer) == KEEL_E_DEVICE_LOST);
    CHECK(side.table().buffer_read(side.ctx(), buffer, 0, &value, 4) == KEEL_E_DEVICE_LOST);
    CHECK(side.table().buffer_write(side.ctx(), buffer, 0, &value, 4) == KEEL_E_DEVICE_LOST);
    CHECK(side.table().flush(side.ctx(), &ticket) == KEEL_E_DEVICE_LOST);
    side.destroy(buffer);
}

TEST_CASE("a planned op compiles nothing in its call") {
    need_device(library());
    Side side(library(), {{"cache", "off"}});
    const std::vector<float> ones(4096, 1.0F);
    keel_buffer *buffer = side.upload(ones.data(), 4 * ones.size());
    const keel_tensor x = tensor_of(buffer, {4, 32}),
                      y = tensor_of(buffer, {4, 32}, KEEL_DTYPE_F32, 1024),
                      weight = tensor_of(buffer, {32}, KEEL_DTYPE_F32, 2048),
                      half = tensor_of(buffer, {4, 32}, KEEL_DTYPE_F16, 4096),
                      places = tensor_of(buffer, {4}, KEEL_DTYPE_I32, 8192);
    keel_move_args move = {};
    move.h = KEEL_HEADER(keel_move_args);
    move.x = &x;
    move.out = &y;
    plan_and_run(side, KEEL_OP_COPY, move);
    plan_and_run(side, KEEL_OP_SOFTMAX, move);
    plan_and_run(side, KEEL_OP_ZERO, move);
    move.out = &half;
    plan_and_run(side, KEEL_OP_CAST, move);
    keel_norm_args norm = {};
    norm.h = KEEL_HEADER(keel_norm_args);
    norm.x = &x;
    norm.weight = &weight;
    norm.out = &y;
    norm.eps = 1e-5F;
    plan_and_run(side, KEEL_OP_RMS_NORM, norm);
    keel_gate_args gate = {};
    gate.h = KEEL_HEADER(keel_gate_args);
    gate.gate = gate.up = &x;
    gate.out = &y;
    plan_and_run(side, KEEL_OP_SILU_MUL, gate);
    keel_elementwise_args scale = {};
    scale.h = KEEL_HEADER(keel_elementwise_args);
    scale.a = &x;
    scale.out = &y;
    scale.factor = 2;
    plan_and_run(side, KEEL_OP_SCALE, scale);
    keel_rows_args rows = {};
    rows.h = KEEL_HEADER(keel_rows_args);
    rows.x = &x;
    rows.index = &places;
    plan_and_run(side, KEEL_OP_ARGMAX_ROWS, rows);
    REQUIRE(side.finish() == KEEL_OK);
    side.destroy(buffer);
}

TEST_CASE("shared memory belongs to the device while kernels run, and to the host after them") {
    need_device(library());
    Side side(library(), {});
    alignas(4096) static float memory[1024] = {};
    for (const keel_buffer_kind kind : {KEEL_BUFFER_HOST_VISIBLE, KEEL_BUFFER_IMPORT}) {
        keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc)};
        desc.size = sizeof memory;
        desc.kind = kind;
        desc.host = kind == KEEL_BUFFER_IMPORT ? memory : nullptr;
        keel_buffer *buffer = nullptr, *again = nullptr;
        const keel_status status = side.table().buffer_create(side.ctx(), &desc, &buffer);
        if (status == KEEL_E_UNSUPPORTED) continue; // the device has its own memory
        REQUIRE(status == KEEL_OK);
        void *at = nullptr, *later = nullptr;
        REQUIRE(side.table().buffer_map(side.ctx(), buffer, &at) == KEEL_OK);
        auto *value = static_cast<float *>(at);
        *value = 3;
        CHECK(doubles(side, buffer) == KEEL_OK); // the layer refuses kernels on mapped memory
        desc.kind = KEEL_BUFFER_HOST_VISIBLE;    // this buffer is made while work is queued
        REQUIRE(side.table().buffer_create(side.ctx(), &desc, &again) == KEEL_OK);
        CHECK(doubles(side, again) == KEEL_OK);
        CHECK(doubles(side, buffer) == KEEL_OK);
        REQUIRE(side.finish() == KEEL_OK);
        CHECK(*value == 12);
        *value = 5;
        CHECK(doubles(side, buffer) == KEEL_OK);
        float read = 0;
        side.read(buffer, &read, 4);
        CHECK(read == 10);
        read = 7;
        side.write(buffer, &read, 4);
        CHECK(*value == 7);
        CHECK(doubles(side, buffer) == KEEL_OK);
        side.write(buffer, &read, 4);
        CHECK(doubles(side, buffer) == KEEL_OK);
        REQUIRE(side.finish() == KEEL_OK);
        CHECK(*value == 14);
        REQUIRE(side.table().buffer_map(side.ctx(), buffer, &later) == KEEL_OK);
        CHECK(later == at);
        side.destroy(again);
        CHECK(doubles(side, buffer) == KEEL_OK);
        side.destroy(buffer);
        if (kind == KEEL_BUFFER_IMPORT) CHECK(memory[0] == 28);
    }
}
