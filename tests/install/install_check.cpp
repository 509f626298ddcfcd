// Run by the install test. Loads the plugins of the outside projects by name, and calls the
// functions of their tables.
#include "plugin/host.hpp"
#include "plugin/registry.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

using keel::HostServices;
using keel::PluginRegistry;

namespace {

const keel::SourceLocation line{"run.yaml", 3, 5};

keel_tensor matrix(keel_buffer *buffer, int64_t rows, int64_t cols) {
    keel_tensor t = {};
    t.h = KEEL_HEADER(keel_tensor);
    t.buffer = buffer;
    t.dtype = KEEL_DTYPE_F32;
    t.rank = 2;
    t.shape[0] = rows;
    t.shape[1] = cols;
    t.stride[0] = cols * 4;
    return t;
}

} // namespace

TEST_CASE("the outside policy loads by name, takes parameters and scores as documented") {
    const auto &plugin = PluginRegistry::process().get("keep_every_nth", KEEL_PLUGIN_POLICY, line);
    HostServices services;
    const std::vector<keel::GivenParam> given = {
        {"n", "3", keel::GivenParam::Form::plain, line},
        {"recent", "2", keel::GivenParam::Form::plain, line}};
    const auto params = plugin.params().bind(given, line);
    const keel_geometry geometry = {KEEL_HEADER(keel_geometry), 2, 4, 2, 8, 64, 0};
    keel_policy_needs needs = {};
    needs.h = KEEL_HEADER(keel_policy_needs);
    keel_policy_state *state = nullptr;
    const keel_policy &policy = plugin.policy();
    REQUIRE(policy.create(services.table(), &geometry, params.data(), params.size(), 1, &needs,
                          &state) == KEEL_OK);
    CHECK(needs.needs == KEEL_NEED_POSITIONS);
    CHECK(needs.granularity == KEEL_KEEP_TOKEN);

    const int32_t length = 10;
    std::vector<int32_t> positions(length);
    std::iota(positions.begin(), positions.end(), 0);
    std::vector<float> scores(length, -1.0f);
    keel_policy_input input = {};
    input.h = KEEL_HEADER(keel_policy_input);
    input.kv_heads = 1;
    input.next_position = length;
    input.stride = length;
    input.lengths = &length;
    input.positions = positions.data();
    keel_policy_decision decision = {KEEL_HEADER(keel_policy_decision), scores.data(), nullptr,
                                     nullptr};
    REQUIRE(policy.decide(state, &input, &decision) == KEEL_OK);
    CHECK(scores == std::vector<float>{2, 1, 1, 2, 1, 1, 2, 1, 3, 3});
    CHECK(policy.reset(state) == KEEL_OK);
    policy.destroy(state);
}

TEST_CASE("the outside policy in C++ loads by name and declares its needs") {
    const auto &plugin = PluginRegistry::process().get("keep_far_keys", KEEL_PLUGIN_POLICY, line);
    HostServices services;
    const auto params = plugin.params().bind({}, line);
    const keel_geometry geometry = {KEEL_HEADER(keel_geometry), 2, 4, 2, 8, 64};
    keel_policy_needs needs = {};
    needs.h = KEEL_HEADER(keel_policy_needs);
    keel_policy_state *state = nullptr;
    const keel_policy &policy = plugin.policy();
    REQUIRE(policy.create(services.table(), &geometry, params.data(), params.size(), 1, &needs,
                          &state) == KEEL_OK);
    CHECK(needs.needs == KEEL_NEED_KEY_NORMS);
    CHECK(needs.least_budget == 5);
    CHECK(policy.fork == nullptr);
    policy.destroy(state);
}

TEST_CASE("the outside backend loads by name and multiplies") {
    const auto &plugin = PluginRegistry::process().get("first_backend", KEEL_PLUGIN_BACKEND, line);
    const keel_backend &backend = plugin.backend();
    CHECK(backend.attention == nullptr);
    HostServices services(2);
    const keel_host *host = services.table();
    uint32_t devices = 0;
    REQUIRE(backend.device_count(host, &devices) == KEEL_OK);
    REQUIRE(devices == 1);
    keel_device_info info = {};
    info.h = KEEL_HEADER(keel_device_info);
    REQUIRE(backend.device_info(host, 0, &info) == KEEL_OK);
    CHECK(std::strcmp(info.name, "First processor") == 0);
    HostServices::drop_error();
    CHECK(backend.device_info(host, 1, &info) == KEEL_E_NOT_FOUND);
    CHECK(HostServices::take_error()->message == "device 1: there is only device 0");

    const auto params = plugin.params().bind({}, line);
    const keel_ctx_desc desc = {KEEL_HEADER(keel_ctx_desc), 0, params.size(), params.data()};
    keel_ctx *ctx = nullptr;
    REQUIRE(backend.ctx_create(host, &desc, &ctx) == KEEL_OK);
    constexpr int64_t m = 3, n = 200, k = 7; // enough columns for two workers
    std::vector<float> x(m * k), w(n * k), y(m * n);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    for (size_t i = 0; i < w.size(); ++i) w[i] = std::cos(static_cast<float>(i));
    keel_buffer *buffers[3] = {};
    const std::vector<float> *sources[] = {&x, &w, &y};
    for (int i = 0; i < 3; ++i) {
        const keel_buffer_desc shape = {KEEL_HEADER(keel_buffer_desc), sources[i]->size() * 4,
                                        KEEL_BUFFER_DEVICE, 0, nullptr};
        REQUIRE(backend.buffer_create(ctx, &shape, &buffers[i]) == KEEL_OK);
        REQUIRE(backend.buffer_write(ctx, buffers[i], 0, sources[i]->data(), shape.size) ==
                KEEL_OK);
    }
    const keel_tensor tx = matrix(buffers[0], m, k), tw = matrix(buffers[1], n, k),
                      ty = matrix(buffers[2], m, n);
    keel_matmul_args args = {};
    args.h = KEEL_HEADER(keel_matmul_args);
    args.x = &tx;
    args.w = &tw;
    args.out = &ty;
    REQUIRE(backend.matmul(ctx, &args) == KEEL_OK);
    uint64_t ticket = 0;
    REQUIRE(backend.flush(ctx, &ticket) == KEEL_OK);
    REQUIRE(backend.wait(ctx, ticket) == KEEL_OK);
    CHECK(backend.wait(ctx, ticket + 1) == KEEL_E_INVALID_ARG);
    REQUIRE(backend.buffer_read(ctx, buffers[2], 0, y.data(), y.size() * 4) == KEEL_OK);
    for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t p = 0; p < k; ++p) sum += static_cast<double>(x[i * k + p]) * w[j * k + p];
            CHECK(std::abs(y[i * n + j] - sum) < 1e-5);
        }
    }
    args.features = uint64_t{1} << 40; // a feature bit that this backend does not know
    CHECK(backend.matmul(ctx, &args) == KEEL_E_UNSUPPORTED);
    for (keel_buffer *buffer : buffers) backend.buffer_destroy(ctx, buffer);
    backend.ctx_destroy(ctx);
}
