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
    CHECK(name("gpu") == "Integrated GPU"); // the first that fits
    CHECK(w.live().none());
}

TEST_CASE("a device that is not there is an error that says what is there") {
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
    CHECK_THAT(error_text([&] { w.open(); }, ErrorKind::resource), Contains("wrapping finds no device"));
    CHECK(w.live().none());
}

TEST_CASE("opening fails cleanly whichever call fails") {
    for (const char *slot : {"device_count", "device_info", "ctx_create", "ctx_info"}) {
        INFO(slot);
        WrappingBackend w;
        w.fail_nth(1, KEEL_E_INTERNAL, slot);
        CHECK_THAT(error_text([&] { w.open(); }, ErrorKind::runtime),
                   Contains("backend wrapping") && Contains(std::string("injected into ") + slot));
        CHECK(w.live().none());
    }
}

TEST_CASE("unknown numbers of a context become the core's defaults") {
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
