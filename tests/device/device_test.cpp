#include "ops/op_table.hpp"
#include "reference/reference.hpp"
#include "support/error_text.hpp"
#include "support/wrapping_backend.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

TEST_CASE("a device is chosen by index, by part of its name, or by the backend") {
    WrappingBackend w;
    w.devices = {"Integrated GPU", "Big Discrete GPU"};
    const auto name = [&](const std::string &selector) {
        return std::string(w.open(selector)->device_info().name);
    };
    CHECK(name("auto") == "Integrated GPU");
    CHECK(name("") == "Integrated GPU");
    CHECK(name("0") == "Integrated GPU");
    CHECK(name("1") == "Big Discrete GPU");
    CHECK(name("discrete") == "Big Discrete GPU");
    CHECK(name("gpu") == "Integrated GPU");  // the first device that matches
    CHECK(name("KEEL") == "Integrated GPU"); // matches the vendor
    CHECK(name("cpu") == "Integrated GPU");  // matches the type, whatever the device is called
    CHECK(w.live().none());
}

TEST_CASE("the error for a missing device lists the existing devices") {
    WrappingBackend w;
    w.devices = {"Integrated GPU", "Big Discrete GPU"};
    CHECK_THAT(error_text([&] { w.open("2"); }),
               Contains("wrapping has 2 device(s)") && Contains("no device 2"));
    CHECK_THAT(error_text([&] { w.open("99999999999999999999"); }),
               Contains("no device 99999999999999999999"));
    CHECK_THAT(error_text([&] { w.open("1x"); }), Contains("'1x'"));
    CHECK_THAT(error_text([&] { w.open("radeon"); }),
               Contains("'radeon'") && Contains("'Integrated GPU', 'Big Discrete GPU'"));
    w.device_count = 0;
    CHECK_THAT(error_text([&] { w.open(); }, ErrorKind::resource),
               Contains("wrapping finds no device"));
    CHECK(w.live().none());
}

TEST_CASE("opening fails without leaks, whichever call fails") {
    for (const char *slot : {"device_count", "device_info", "ctx_create", "ctx_info"}) {
        INFO(slot);
        WrappingBackend w;
        w.fail_nth(1, KEEL_E_INTERNAL, slot);
        CHECK_THAT(error_text([&] { w.open(); }, ErrorKind::runtime),
                   Contains("backend wrapping") && Contains(std::string("injected into ") + slot));
        CHECK(w.live().none());
    }
}

TEST_CASE("numbers that a context does not report become the core's defaults") {
    WrappingBackend w;
    w.hide_all_but({"matmul"});
    const auto device = w.open();
    CHECK(device->info().activation_dtype == KEEL_DTYPE_F32);
    CHECK(device->info().kv_block_slots == 64);
    CHECK(device->info().prefill_chunk == 512);
    CHECK(device->info().buffer_align == 64);
    CHECK(device->mem_info().total == 0);
    CHECK(device->mem_info().ours == 0);
}

TEST_CASE("impossible numbers of a backend are an error, and are not replaced by defaults") {
    WrappingBackend blocks, chunk;
    blocks.kv_block_slots = 96;
    CHECK_THAT(
        error_text([&] { blocks.open(); }, ErrorKind::plugin),
        Contains("backend wrapping: found kv_block_slots 96, expected a power of two up to 4096") &&
            Contains("a fault of the plugin"));
    chunk.prefill_chunk = 1 << 17;
    CHECK_THAT(error_text([&] { chunk.open(); }, ErrorKind::plugin),
               Contains("found prefill_chunk 131072"));
    CHECK(chunk.live().none());
}

TEST_CASE("an error names the config line of the selector, of a parameter, or of the plugin") {
    WrappingBackend w;
    w.devices = {"Integrated GPU"};
    const auto spec = [&](const std::string &selector) {
        DeviceSpec s = w.spec(selector);
        s.places.plugin = {"f.yaml", 2, 11};
        s.places.params.emplace_back("ctx_info", SourceLocation{"f.yaml", 3, 20});
        s.selector_at = {"f.yaml", 4, 13};
        return s;
    };
    CHECK_THAT(error_text([&] { Device::open(spec("radeon")); }),
               Catch::StartsWith("f.yaml:4:13: backend wrapping has no device"));
    CHECK_THAT(error_text([&] { Device::open(spec("7")); }), Catch::StartsWith("f.yaml:4:13: "));
    w.fail_nth(1, KEEL_E_INTERNAL, "ctx_create");
    CHECK_THAT(error_text([&] { Device::open(spec("0")); }, ErrorKind::runtime),
               Catch::StartsWith("f.yaml:2:11: backend wrapping: opening device 0"));
    w.clear_fault();
    w.fail_nth(1, KEEL_E_INTERNAL,
               "ctx_info"); // the message is about a parameter of the test's name
    CHECK_THAT(error_text([&] { Device::open(spec("0")); }, ErrorKind::runtime),
               Catch::StartsWith("f.yaml:3:20: backend wrapping: ctx_info"));
    w.clear_fault();
    const auto device = Device::open(spec("0"));
    w.fail_nth(1, KEEL_E_INTERNAL, "buffer_write");
    const BufferPtr buffer = device->allocate(64);
    const uint32_t word = 0;
    CHECK_THAT(error_text([&] { buffer->write(0, &word, 4); }, ErrorKind::runtime),
               Catch::StartsWith("f.yaml:2:11: backend wrapping: buffer_write"));
}

TEST_CASE("a message of an earlier call is not reported as the reason of a later failure") {
    DeviceSpec spec;
    spec.plugin = "mute";
    spec.table = *reference_backend();
    spec.host = std::make_shared<HostServices>(1);
    spec.table.flush = [](keel_ctx *, uint64_t *) -> keel_status { return KEEL_E_INTERNAL; };
    spec.table.buffer_write = [](keel_ctx *, keel_buffer *, uint64_t, const void *,
                                 uint64_t) -> keel_status { return KEEL_E_INTERNAL; };
    spec.table.zero = [](keel_ctx *, const keel_move_args *) -> keel_status {
        return KEEL_E_INTERNAL;
    };
    const auto device = Device::open(std::move(spec));
    const auto mutter = [&] {
        device->host()->table()->set_error(device->host()->table(), KEEL_E_INTERNAL, "stale words");
    };
    const BufferPtr buffer = device->allocate(64);
    const uint32_t word = 0;
    mutter();
    CHECK_THAT(error_text([&] { buffer->write(0, &word, 4); }, ErrorKind::runtime),
               !Contains("stale"));
    device->stream().op_queued("op");
    mutter();
    CHECK_THAT(error_text([&] { device->stream().wait(); }, ErrorKind::runtime),
               !Contains("stale"));
    mutter();
    keel_move_args zero = {KEEL_HEADER(keel_move_args)};
    CHECK(call_op(device->table(), KEEL_OP_ZERO, device->ctx(),
                  reinterpret_cast<keel_op_args *>(&zero)) == KEEL_E_INTERNAL);
    CHECK(take_message().empty());
    mutter();
    CHECK(device->with_memory([] { return KEEL_E_OUT_OF_MEMORY; }) == KEEL_E_OUT_OF_MEMORY);
    CHECK(take_message().empty());
}
