#include "plugin/host.hpp"

#include "base/log_sinks.hpp"

#include <catch2/catch.hpp>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

using keel::HostServices;

TEST_CASE("an error is kept per thread, without control characters, and can be read once") {
    HostServices services;
    const keel_host *host = services.table();
    HostServices::drop_error();
    CHECK_FALSE(HostServices::take_error());
    host->set_error(host, KEEL_E_OUT_OF_MEMORY, "no\x1b[2J room\n");
    std::thread([&] { CHECK_FALSE(HostServices::take_error()); }).join();
    const auto error = HostServices::take_error();
    REQUIRE(error);
    CHECK(error->status == KEEL_E_OUT_OF_MEMORY);
    CHECK(error->message.find('\x1b') == std::string::npos);
    CHECK(error->message.find('\n') == std::string::npos);
    CHECK(error->message.find("room") != std::string::npos);
    CHECK_FALSE(HostServices::take_error());
    host->set_error(host, KEEL_E_INTERNAL, nullptr);
    CHECK(HostServices::take_error()->message.empty());
    host->set_error(host, KEEL_E_INTERNAL, std::string(100'000, 'x').c_str());
    CHECK(HostServices::take_error()->message.size() < 2000);
}

TEST_CASE("an error set by a worker of a region reaches the caller") {
    HostServices services;
    const keel_host *host = services.table();
    HostServices::drop_error();
    const auto body = [](void *user, const keel_region *region) {
        const auto *h = static_cast<const keel_host *>(user);
        if (region->worker == 1) h->set_error(h, KEEL_E_INTERNAL, "worker 1 is unwell");
    };
    CHECK(host->parallel_region(host, 2, body, const_cast<keel_host *>(host)) == KEEL_OK);
    const auto error = HostServices::take_error();
    REQUIRE(error);
    CHECK(error->message == "worker 1 is unwell");
}

TEST_CASE("memory has the requested alignment, and absurd requests give NULL") {
    HostServices services;
    const keel_host *host = services.table();
    for (uint64_t align = 1; align <= 1 << 21; align *= 2) {
        for (uint64_t size : {0u, 1u, 7u, 4096u, 100'001u}) {
            void *block = host->alloc(host, size, align);
            REQUIRE(block != nullptr);
            CHECK(reinterpret_cast<uintptr_t>(block) % align == 0);
            host->free(host, block);
        }
    }
    CHECK(host->alloc(host, 16, 0) == nullptr);
    CHECK(host->alloc(host, 16, 3) == nullptr);
    CHECK(host->alloc(host, UINT64_MAX, 64) == nullptr);
    host->free(host, nullptr);
}

TEST_CASE("regions run with their barrier, and wrong use is an error with a reason") {
    HostServices services(2);
    const keel_host *host = services.table();
    CHECK(host->worker_count(host) == 2);
    struct Shared {
        int cells[4] = {};
        int sums[4] = {};
    } shared;
    const auto body = [](void *user, const keel_region *region) {
        auto &s = *static_cast<Shared *>(user);
        s.cells[region->worker] = static_cast<int>(region->worker) + 1;
        region->barrier(region);
        for (uint32_t i = 0; i < region->n; ++i) s.sums[region->worker] += s.cells[i];
    };
    CHECK(host->parallel_region(host, 4, body, &shared) == KEEL_OK);
    for (int sum : shared.sums) CHECK(sum == 10);
    HostServices::drop_error();
    CHECK(host->parallel_region(host, 1, nullptr, nullptr) == KEEL_E_INVALID_ARG);
    CHECK(host->parallel_region(host, 257, body, &shared) == KEEL_E_INVALID_ARG);
    CHECK(HostServices::take_error()->message == "parallel_region: more than 256 workers");
    struct Nested {
        const keel_host *host;
        keel_status status[2];
    } nested{host, {KEEL_OK, KEEL_OK}};
    const auto nest = [](void *user, const keel_region *region) {
        auto &n = *static_cast<Nested *>(user);
        const auto nothing = [](void *, const keel_region *) {};
        n.status[region->worker] = n.host->parallel_region(n.host, 2, nothing, nullptr);
    };
    CHECK(host->parallel_region(host, 2, nest, &nested) == KEEL_OK);
    CHECK(nested.status[0] == KEEL_E_INVALID_ARG);
    CHECK(nested.status[1] == KEEL_E_INVALID_ARG);
    CHECK(HostServices::take_error()->message ==
          "parallel_region: expected no region to be active in this thread; regions cannot nest");
}

TEST_CASE("plugins see a cancellation until it is cleared") {
    HostServices services;
    const keel_host *host = services.table();
    CHECK(host->cancelled(host) == 0);
    services.request_cancel();
    CHECK(host->cancelled(host) == 1);
    services.clear_cancel();
    CHECK(host->cancelled(host) == 0);
}

TEST_CASE("host services are found by their whole name only") {
    HostServices services;
    const keel_host *host = services.table();
    const int service = 1;
    services.add_extension("keel.test/1", &service);
    CHECK(host->get_extension(host, "keel.test/1") == &service);
    CHECK(host->get_extension(host, "keel.test/1 and more") == nullptr);
    CHECK(host->get_extension(host, "keel.test/") == nullptr);
    CHECK(host->get_extension(host, nullptr) == nullptr);
}

TEST_CASE(
    "a plugin's log lines reach Keel's logger as one line each, and are dropped without a sink") {
    HostServices services;
    const keel_host *host = services.table();
    host->log(host, KEEL_LOG_ERROR, "no sink: this goes nowhere");
    std::ostringstream text;
    keel::spdlog_logger().sinks().push_back(std::make_shared<spdlog::sinks::ostream_sink_st>(text));
    host->log(host, KEEL_LOG_WARN, "two\nlines");
    host->log(host, KEEL_LOG_TRACE, "too fine for the level");
    host->log(host, 77, "an unknown level counts as an error");
    host->log(host, KEEL_LOG_INFO, nullptr);
    keel::spdlog_logger().sinks().clear();
    const std::string lines = text.str();
    CHECK(std::count(lines.begin(), lines.end(), '\n') == 2);
    CHECK(lines.find("[warning] two") != std::string::npos);
    CHECK(lines.find("[error] an unknown level") != std::string::npos);
}

TEST_CASE("statuses have names") {
    CHECK(keel::status_name(KEEL_E_NOT_READY) == "KEEL_E_NOT_READY");
    CHECK(keel::status_name(0x10001) == "plugin status 65537");
    CHECK(keel::status_text(KEEL_E_OUT_OF_MEMORY) == "out of memory");
}
