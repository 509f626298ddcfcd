// Tests of the plugin through its table, for properties that the conformance program does not
// check.
#include "support/driver_caches.hpp"
#include "support/gpu_rig.hpp"
#include "support/run_process.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <vector>

using namespace keel;
using namespace keel::conformance;
using test::need_device;
namespace fs = std::filesystem;

namespace {

const Library &library() {
    static const Library plugin(KEEL_OPENCL_PLUGIN);
    return plugin;
}

keel_status create(Side &side, keel_buffer_kind kind, void *memory, keel_buffer **out) {
    keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc)};
    desc.size = 4096;
    desc.kind = kind;
    desc.host = memory;
    return side.table().buffer_create(side.ctx(), &desc, out);
}

// Computes 1 + 2 on the device.
float adds(Side &side) {
    float values[3] = {1, 2, 0};
    keel_buffer *buffer = side.upload(values, sizeof values);
    keel_tensor t[3] = {};
    for (int i = 0; i < 3; ++i) {
        t[i].h = KEEL_HEADER(keel_tensor);
        t[i].buffer = buffer;
        t[i].offset = 4 * static_cast<uint64_t>(i);
        t[i].dtype = KEEL_DTYPE_F32;
        t[i].rank = 1;
        t[i].shape[0] = 1;
    }
    keel_elementwise_args a = {};
    a.h = KEEL_HEADER(keel_elementwise_args);
    a.a = &t[0];
    a.b = &t[1];
    a.out = &t[2];
    REQUIRE(side.table().add(side.ctx(), &a) == KEEL_OK);
    side.read(buffer, values, sizeof values);
    side.destroy(buffer);
    return values[2];
}

} // namespace

TEST_CASE("GPUs come before processors") {
    need_device(library());
    test::TestHost host;
    bool cpu_seen = false;
    for (uint32_t i = 0, n = test::device_count(library()); i < n; ++i) {
        keel_device_info info = {KEEL_HEADER(keel_device_info)};
        REQUIRE(library().table().device_info(host.table(), i, &info) == KEEL_OK);
        INFO(info.name);
        const bool cpu = info.type == KEEL_DEVICE_CPU;
        CHECK((cpu || !cpu_seen));
        cpu_seen = cpu_seen || cpu;
        CHECK(info.name[0] != 0);
        CHECK(info.total_bytes > 0);
        if (cpu) CHECK((info.flags & KEEL_DEVICE_UNIFIED) != 0);
    }
}

TEST_CASE("without a driver there is no device, and users get the reason") {
    const test::TempFolder nothing;
    fs::create_directory(nothing / "vendors");
    test::ProcessOptions options;
    options.environment = {"OCL_ICD_VENDORS=" + (nothing / "vendors").string() + "/"};
    const std::string bin = std::string(KEEL_BINARY_DIR) + "/bin/";
    const auto conformance =
        test::run_process({bin + "keel_conformance", KEEL_OPENCL_PLUGIN, "--quick"}, options);
    CHECK(conformance.code == 77);
    CHECK(conformance.err.find("finds no device") != std::string::npos);
}

TEST_CASE("memory: staged shares no memory with the host") {
    need_device(library());
    Side staged(library(), {{"memory", "staged"}});
    keel_buffer *buffer = nullptr;
    alignas(4096) static unsigned char memory[4096];
    CHECK(create(staged, KEEL_BUFFER_HOST_VISIBLE, nullptr, &buffer) == KEEL_E_UNSUPPORTED);
    CHECK(create(staged, KEEL_BUFFER_IMPORT, memory, &buffer) == KEEL_E_UNSUPPORTED);
    CHECK(create(staged, KEEL_BUFFER_RESERVE, nullptr, &buffer) == KEEL_E_UNSUPPORTED);
    REQUIRE(create(staged, KEEL_BUFFER_DEVICE, nullptr, &buffer) == KEEL_OK);
    void *at = nullptr;
    CHECK(staged.table().buffer_map(staged.ctx(), buffer, &at) == KEEL_E_UNSUPPORTED);
    staged.destroy(buffer);
    CHECK(adds(staged) == 3);
}

TEST_CASE("many writes, larger together than the staging memory, are done in order") {
    need_device(library());
    Side side(library(), {});
    std::vector<uint32_t> data(3 << 20); // 12 MiB
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint32_t>(i * 2654435761U);
    keel_buffer *buffer = side.upload(data.data(), data.size() * 4);
    for (uint32_t i = 0; i < 5000; ++i) { // each write has its own copy of the source
        data[i * 7] = i;
        REQUIRE(side.table().buffer_write(side.ctx(), buffer, uint64_t{i} * 28, &data[i * 7], 4) ==
                KEEL_OK);
    }
    std::vector<uint32_t> back(data.size());
    side.read(buffer, back.data(), back.size() * 4);
    CHECK(back == data);
    side.destroy(buffer);
}

TEST_CASE("kernels: auto is plain on processors and local on GPUs") {
    need_device(library());
    test::TestHost host;
    keel_device_info device = {KEEL_HEADER(keel_device_info)};
    REQUIRE(library().table().device_info(host.table(), 0, &device) == KEEL_OK);
    Side side(library(), {});
    const std::string expected = device.type == KEEL_DEVICE_CPU ? "kernels plain" : "kernels local";
    INFO(side.info().description);
    CHECK(std::string(side.info().description).find(expected) != std::string::npos);
}

TEST_CASE("a bad cache folder has no effect") {
    need_device(library());
    const test::TempFolder folder;
    const std::string cache = folder / "cache";
    for (int round = 0; round < 3; ++round) {
        Side side(library(), {{"cache", cache}});
        CHECK(adds(side) == 3);
        CHECK_FALSE(fs::is_empty(cache));
        for (const auto &entry : fs::directory_iterator(cache))
            if (round == 1) std::ofstream(entry.path(), std::ios::trunc) << "not a program";
    }
    Side off(library(), {{"cache", "off"}});
    CHECK(adds(off) == 3);
    Side nowhere(library(), {{"cache", "/proc/nowhere"}});
    CHECK(adds(nowhere) == 3);
}

TEST_CASE("a buffer above the device's limit is refused, and nothing changes") {
    need_device(library());
    Side side(library(), {});
    const uint64_t held = side.bytes_held();
    keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc)};
    desc.size = side.info().max_buffer_bytes + 4096;
    keel_buffer *buffer = nullptr;
    CHECK(side.table().buffer_create(side.ctx(), &desc, &buffer) == KEEL_E_OUT_OF_MEMORY);
    CHECK(buffer == nullptr);
    CHECK(side.bytes_held() == held);
    CHECK(side.error().find("allows") != std::string::npos);
    CHECK(adds(side) == 3);
}
