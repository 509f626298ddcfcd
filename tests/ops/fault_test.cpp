#include "support/error_text.hpp"
#include "support/mini_pipeline.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

#include <set>

using namespace keel;
using namespace keel::test;
using Catch::Matchers::Contains;

namespace {

struct Outcome {
    bool failed = false;
    std::string text;
    ErrorKind kind = ErrorKind::internal;
};

// Makes a pipeline and generates text. If an exception other than keel::Error is thrown, the test
// fails.
Outcome attempt(WrappingBackend &w, Executor::Options options = {}) {
    try {
        MiniPipeline p(w.open(), std::move(options));
        if (p.generate(3) !=
            std::vector<int32_t>(expected_tokens().begin(), expected_tokens().begin() + 3))
            return {true, "wrong tokens", ErrorKind::internal};
    } catch (const Error &error) {
        return {true, error.what(), error.kind()};
    }
    return {};
}

} // namespace

TEST_CASE("any failing call with any status gives one error, and leaves nothing behind") {
    expected_tokens();
    for (const keel_status status : std::initializer_list<keel_status>{
             KEEL_E_OUT_OF_MEMORY, KEEL_E_DEVICE_LOST, KEEL_E_INTERNAL, 0x10001}) {
        std::set<std::string> hit;
        bool passed = false;
        for (uint64_t n = 1; !passed && n < 5000; ++n) {
            WrappingBackend w;
            w.asynchronous = n % 2 == 0;
            w.fail_nth(n, status);
            const Outcome outcome = attempt(w, {false, nullptr, {SyncStrategy::Kind::eager, 0}});
            INFO("call " << n << " (" << w.fault_slot() << ") fails with " << status << ": "
                         << outcome.text);
            REQUIRE(w.live().none());
            REQUIRE(w.calls_after_loss() == 0);
            passed = !w.fault_fired();
            REQUIRE(outcome.text != "wrong tokens");
            if (passed) {
                REQUIRE_FALSE(outcome.failed);
                continue;
            }
            hit.insert(w.fault_slot());
            // These faults need not make the run fail: a query whose answer is optional, a map that
            // fails (then memory is copied), an allocation that is tried again after the pool was
            // emptied, and memory that is given back at the end.
            if (!outcome.failed) {
                const bool optional = w.fault_slot() == "mem_info" ||
                                      w.fault_slot() == "buffer_map" ||
                                      w.fault_slot() == "buffer_commit";
                REQUIRE((optional || status == KEEL_E_OUT_OF_MEMORY));
                continue;
            }
            REQUIRE_THAT(outcome.text, Contains("backend wrapping"));
            REQUIRE_THAT(outcome.text, Contains("injected into " + w.fault_slot()));
            REQUIRE(outcome.text.find('\n') == std::string::npos);
            REQUIRE((outcome.kind == ErrorKind::resource) == (status == KEEL_E_OUT_OF_MEMORY));
            const auto &ops = WrappingBackend::op_slots();
            if (std::find(ops.begin(), ops.end(), w.fault_slot()) != ops.end())
                REQUIRE_THAT(outcome.text, Contains("(" + w.fault_slot() + ")") &&
                                               (Contains("layer") || Contains("decode") ||
                                                Contains("prefill") || Contains("argmax")));
        }
        CHECK(passed);
        for (const char *slot : {"device_count", "ctx_create", "buffer_create", "buffer_write",
                                 "buffer_read", "flush", "wait", "weight_prepare", "weight_info",
                                 "op_plan", "plan_info", "matmul", "attention"}) {
            INFO(slot << " with status " << status);
            CHECK(hit.count(slot) == 1);
        }
    }
}

TEST_CASE("with eager, an error names the op that was waited for") {
    WrappingBackend w;
    MiniPipeline p(w.open(), {true, nullptr, {SyncStrategy::Kind::eager, 0}});
    p.generate(1);
    w.fail_nth(1, KEEL_E_INTERNAL, "wait");
    CHECK_THAT(error_text([&] { p.step(1); }, ErrorKind::runtime),
               Contains("backend wrapping") && Contains("decode embedding") &&
                   Contains("injected into wait"));
}

TEST_CASE(
    "the error of a failed op says where it is, which backend failed, and the backend's message") {
    WrappingBackend w;
    MiniPipeline p(w.open());
    p.generate(1);
    w.fail_nth(2, KEEL_E_INTERNAL, "attention");
    CHECK_THAT(error_text([&] { p.step(1); }, ErrorKind::runtime),
               Contains("backend wrapping: decode layer 1: attention (attention)") &&
                   Contains("injected into attention"));
    CHECK(p.generate() == expected_tokens()); // a failed op does not end the pipeline
}

TEST_CASE("after a device is lost, it gets only destroy calls") {
    WrappingBackend w;
    w.asynchronous = true;
    {
        MiniPipeline p(w.open());
        p.generate(2);
        w.fail_nth(1, KEEL_E_DEVICE_LOST, "matmul");
        error_text([&] { p.step(1); }, ErrorKind::runtime);
        CHECK(p.executor.device().is_lost());
        w.clear_calls();
        CHECK_THAT(error_text([&] { p.step(1); }, ErrorKind::runtime), Contains("lost"));
        CHECK_THAT(error_text([&] { p.logits(); }, ErrorKind::runtime), Contains("lost"));
        CHECK_THAT(error_text([&] { p.executor.device().allocate(1 << 20); }, ErrorKind::runtime),
                   Contains("lost"));
        CHECK_THAT(error_text([&] { p.executor.stream().wait(); }, ErrorKind::runtime),
                   Contains("lost"));
        CHECK(p.executor.device().mem_info().ours == 0);
        CHECK(w.calls().empty());
    }
    for (const WrappingBackend::Call &call : w.calls()) {
        INFO(call.slot);
        CHECK(call.slot.find("destroy") != std::string::npos);
    }
    CHECK(w.live().none());
}

TEST_CASE("errors of the fallback name the fallback") {
    bool passed = false;
    for (uint64_t n = 1; !passed && n < 2000; ++n) {
        WrappingBackend w, second;
        w.hide("silu_mul");
        if (n % 2 == 0) w.hide("buffer_map");
        DeviceSpec spec = second.spec();
        spec.plugin = "second";
        const auto fallback = Device::open(std::move(spec));
        second.fail_nth(n, n % 3 == 0 ? KEEL_E_DEVICE_LOST : KEEL_E_INTERNAL);
        const Outcome outcome = attempt(w, {false, fallback, {}});
        INFO("call " << n << " (" << second.fault_slot() << "): " << outcome.text);
        REQUIRE(w.live().none());
        REQUIRE(second.calls_after_loss() == 0);
        passed = !second.fault_fired();
        if (passed)
            REQUIRE_FALSE(outcome.failed);
        else
            REQUIRE((!outcome.failed || outcome.text.find("backend second") != std::string::npos));
    }
    CHECK(passed);
}

TEST_CASE("the error for too little device memory says how much was needed") {
    for (const uint64_t limit : std::initializer_list<uint64_t>{0, 1000, 10000, 20000, 40000}) {
        INFO(limit);
        WrappingBackend w;
        w.memory_limit = limit;
        const Outcome outcome = attempt(w);
        CHECK(w.live().none());
        if (outcome.failed) {
            CHECK(outcome.kind == ErrorKind::resource);
            CHECK_THAT(outcome.text,
                       Contains("backend wrapping: a buffer of ") && Contains("out of memory"));
        }
    }
    WrappingBackend w;
    w.max_buffer_bytes = 256;
    CHECK(attempt(w).kind == ErrorKind::resource);
}
