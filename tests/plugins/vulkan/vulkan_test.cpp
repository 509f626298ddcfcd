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
using test::doubles;
using test::need_device;
using test::tensor_of;
namespace fs = std::filesystem;

namespace {

const Library &library() {
    static const Library plugin(KEEL_VULKAN_PLUGIN);
    return plugin;
}

keel_buffer *create(Side &side, uint64_t size, keel_buffer_kind kind = KEEL_BUFFER_DEVICE,
                    void *memory = nullptr) {
    keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc)};
    desc.size = size;
    desc.kind = kind;
    desc.host = memory;
    keel_buffer *buffer = nullptr;
    return side.table().buffer_create(side.ctx(), &desc, &buffer) == KEEL_OK ? buffer : nullptr;
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
        CHECK(info.name[0] != 0);
        CHECK(info.driver[0] != 0);
        CHECK(info.total_bytes > 0);
        const bool cpu = info.type == KEEL_DEVICE_CPU;
        CHECK((cpu || !cpu_seen));
        cpu_seen = cpu_seen || cpu;
    }
}

TEST_CASE("without a driver there are no devices, which is not an error") {
    for (const char *name : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}) {
        const test::ProcessResult result =
            test::run_process({"/usr/bin/env", "-u", "VK_DRIVER_FILES", "-u", "VK_ICD_FILENAMES",
                               std::string(name) + "=/nowhere/icd.json", KEEL_CONFORMANCE,
                               KEEL_VULKAN_PLUGIN, "--quick"});
        INFO(result.out << result.err);
        CHECK(result.code == 77);
        CHECK(result.err.find("finds no device") != std::string::npos);
    }
}

TEST_CASE("fast products are refused by name if there are no cooperative matrices") {
    need_device(library());
    try {
        Side side(library(), {{"compute", "fast"}});
        CHECK(std::string(side.info().description).find("compute fast") != std::string::npos);
    } catch (const Unusable &unusable) {
        CHECK(unusable.why.find("VK_NV_cooperative_matrix") != std::string::npos);
    }
}

TEST_CASE("many ops without a flush run in order") {
    need_device(library());
    Side side(library(), {});
    float value = 1;
    keel_buffer *buffer = side.upload(&value, 4);
    for (int round = 0; round < 40; ++round) { // several submissions that use all command buffers
        for (int i = 0; i < 100; ++i) REQUIRE(doubles(side, buffer) == KEEL_OK);
        value = static_cast<float>(round);
        side.write(buffer, &value, 4);
    }
    REQUIRE(doubles(side, buffer) == KEEL_OK);
    side.read(buffer, &value, 4);
    CHECK(value == 78);
    side.destroy(buffer);
}

TEST_CASE("writes larger than the staging ring are complete while work is queued") {
    need_device(library());
    for (const char *memory : {"auto", "staged"}) {
        INFO(memory);
        Side side(library(), {{"memory", memory}});
        std::vector<uint32_t> data(6u << 20), back(data.size());
        for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint32_t>(i * 2654435761u);
        float one = 1;
        keel_buffer *small = side.upload(&one, 4), *large = create(side, 4 * data.size());
        REQUIRE(large != nullptr);
        REQUIRE(doubles(side, small) == KEEL_OK);
        side.write(large, data.data(), 4 * data.size());
        REQUIRE(doubles(side, small) == KEEL_OK);
        side.read(large, back.data(), 4 * back.size());
        CHECK((back == data));
        side.read(small, &one, 4);
        CHECK(one == 4);
        side.destroy(small);
        side.destroy(large);
    }
}

TEST_CASE("a buffer that is destroyed while work uses it exists until the work is done") {
    need_device(library());
    Side side(library(), {});
    const uint64_t before = side.bytes_held();
    for (int i = 0; i < 300; ++i) {
        float value = 1;
        keel_buffer *buffer = side.upload(&value, 4);
        REQUIRE(doubles(side, buffer) == KEEL_OK);
        side.destroy(buffer);
    }
    CHECK(side.finish() == KEEL_OK);
    CHECK(side.bytes_held() == before);
}

// Kernels access memory by address, so maxStorageBufferRange (128 MiB in lavapipe) is not a limit.
TEST_CASE("a weight larger than 128 MiB is used completely") {
    need_device(library());
    Side side(library(), {});
    constexpr int64_t rows = 36000, cols = 1024;
    std::vector<float> w(static_cast<size_t>(rows * cols));
    for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i / cols % 7);
    keel_weight_source source = {KEEL_HEADER(keel_weight_source)};
    source.mapping = w.data();
    source.mapping_bytes = 4 * w.size();
    source.dtype = KEEL_DTYPE_F32;
    source.rows = rows;
    source.cols = cols;
    const keel_weight_source *sources[] = {&source};
    keel_weight_desc desc = {KEEL_HEADER(keel_weight_desc)};
    desc.sources = sources;
    desc.n_sources = 1;
    desc.use = KEEL_USE_MATMUL | KEEL_USE_EMBED;
    desc.max_m = 1;
    keel_weight *weight = nullptr;
    REQUIRE(side.table().weight_prepare(side.ctx(), &desc, &weight) == KEEL_OK);
    const std::vector<float> ones(cols, 1.0F);
    keel_buffer *x = side.upload(ones.data(), 4 * cols), *y = create(side, 4 * rows);
    REQUIRE(y != nullptr);
    const keel_tensor x_view = tensor_of(x, {1, cols}), y_view = tensor_of(y, {1, rows});
    keel_matmul_args a = {};
    a.h = KEEL_HEADER(keel_matmul_args);
    a.x = &x_view;
    a.weight = weight;
    a.out = &y_view;
    REQUIRE(side.table().matmul(side.ctx(), &a) == KEEL_OK);
    std::vector<float> result(rows);
    side.read(y, result.data(), 4 * rows);
    int64_t wrong = 0;
    for (int64_t r = 0; r < rows; ++r)
        wrong += result[static_cast<size_t>(r)] != static_cast<float>(cols * (r % 7));
    CHECK(wrong == 0);
    side.table().weight_destroy(side.ctx(), weight);
    side.destroy(x);
    side.destroy(y);
}

TEST_CASE("a buffer above the device's limit is refused, and the context can continue") {
    need_device(library());
    Side side(library(), {});
    REQUIRE(side.info().max_buffer_bytes > 0);
    CHECK(create(side, side.info().max_buffer_bytes + 1) == nullptr);
    CHECK(side.error().find("maxMemoryAllocationSize") != std::string::npos);
    float value = 3;
    keel_buffer *buffer = side.upload(&value, 4);
    REQUIRE(doubles(side, buffer) == KEEL_OK);
    side.read(buffer, &value, 4);
    CHECK(value == 6);
    side.destroy(buffer);
}

// If cache files are replaced by random bytes, results do not change.
TEST_CASE("a broken pipeline cache is ignored and replaced") {
    need_device(library());
    const test::TempFolder folder;
    const auto run = [&] {
        Side side(library(), {{"cache", folder.path().string()}});
        float value = 1;
        keel_buffer *buffer = side.upload(&value, 4);
        REQUIRE(doubles(side, buffer) == KEEL_OK);
        side.read(buffer, &value, 4);
        CHECK(value == 2);
        side.destroy(buffer);
    };
    run();
    std::vector<fs::path> files;
    for (const auto &entry : fs::directory_iterator(folder.path())) files.push_back(entry.path());
    REQUIRE(files.size() == 1);
    const auto size = fs::file_size(files[0]);
    std::ofstream(files[0], std::ios::trunc) << "rubbish";
    run();
    CHECK(fs::file_size(files[0]) == size);
}

TEST_CASE("scores are right if attention overwrites its queries") {
    need_device(library());
    const Library reference("reference");
    Side side(library(), {}), oracle(reference, {});
    constexpr int64_t heads = 4, dim = 32, slots = 48, m = 3;
    std::vector<float> q(m * heads * dim), k(slots * dim), v(slots * dim);
    for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>((i * 37 % 101)) / 50 - 1;
    for (size_t i = 0; i < k.size(); ++i)
        k[i] = static_cast<float>((i * 53 % 97)) / 48 - 1,
        v[i] = static_cast<float>((i * 29 % 89)) / 44 - 1;
    std::vector<float> scores[2], results[2];
    Side *sides[] = {&side, &oracle};
    for (int s = 0; s < 2; ++s) {
        Side &on = *sides[s];
        std::vector<int32_t> table(slots / 16), positions(slots);
        for (int32_t i = 0; i < slots; ++i) positions[static_cast<size_t>(i)] = i;
        for (int32_t i = 0; i < slots / 16; ++i) table[static_cast<size_t>(i)] = i;
        const int32_t length = slots;
        std::vector<keel_buffer *> buffers = {on.upload(q.data(), 4 * q.size()),
                                              on.upload(k.data(), 4 * k.size()),
                                              on.upload(v.data(), 4 * v.size()),
                                              on.upload(table.data(), 4 * table.size()),
                                              on.upload(&length, 4),
                                              on.upload(positions.data(), 4 * positions.size()),
                                              create(on, 4 * slots)};
        const keel_tensor qt = tensor_of(buffers[0], {m, heads, dim}),
                          kt = tensor_of(buffers[1], {slots / 16, 16, dim}),
                          vt = tensor_of(buffers[2], {slots / 16, 16, dim}),
                          tt = tensor_of(buffers[3], {1, slots / 16}, KEEL_DTYPE_I32),
                          lt = tensor_of(buffers[4], {1}, KEEL_DTYPE_I32),
                          pt = tensor_of(buffers[5], {1, slots}, KEEL_DTYPE_I32),
                          st = tensor_of(buffers[6], {1, slots});
        keel_kv_view kv = {KEEL_HEADER(keel_kv_view)};
        kv.k = &kt, kv.v = &vt, kv.block_table = &tt, kv.lengths = &lt, kv.positions = &pt;
        kv.block_slots = 16, kv.kv_heads = 1, kv.max_length = slots;
        keel_scores reduce = {KEEL_HEADER(keel_scores)};
        reduce.out = &st;
        reduce.reduce_queries = reduce.reduce_group = KEEL_REDUCE_SUM;
        keel_attention_args a = {};
        a.h = KEEL_HEADER(keel_attention_args);
        a.features = KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_SCORES;
        a.q = a.out = &qt;
        a.kv = &kv;
        a.scores = &reduce;
        a.scale = 0.2F;
        REQUIRE(on.table().attention(on.ctx(), &a) == KEEL_OK);
        scores[s].resize(slots), results[s].resize(q.size());
        on.read(buffers[6], scores[s].data(), 4 * slots);
        on.read(buffers[0], results[s].data(), 4 * q.size());
        for (keel_buffer *buffer : buffers) on.destroy(buffer);
    }
    for (size_t i = 0; i < slots; ++i) CHECK(scores[0][i] == Approx(scores[1][i]).margin(1e-5));
    for (size_t i = 0; i < results[0].size(); ++i)
        CHECK(results[0][i] == Approx(results[1][i]).margin(1e-5));
}
