#include "eval/bench/attention/attention_report.hpp"
#include "run/bind_plugin.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace keel;

namespace {

std::shared_ptr<Device> open_backend(const std::string &name) {
    static const auto host = std::make_shared<HostServices>();
    const std::vector<std::string> sets{"model.path=.", "backend.plugin=" + name};
    return open_device(pipeline::config_from_overrides(sets).backend, host);
}

AttentionBenchOptions small_attention() {
    AttentionBenchOptions o;
    o.lengths = {5, 33};
    o.head_dims = {16};
    o.heads = 4, o.kv_heads = 2;
    o.repeat = 2;
    return o;
}

} // namespace

TEST_CASE("the attention bench measures every combination, forward and backward") {
    AttentionBenchOptions o = small_attention();
    o.dtypes = {KEEL_DTYPE_F32, KEEL_DTYPE_BF16};
    const AttentionBenchReport report = bench_attention([] { return open_backend("cpu"); }, o);
    REQUIRE(report.tests.size() == 8);
    CHECK(report.has_backward);
    for (const AttentionTest &test : report.tests) {
        CHECK(test.refused.empty());
        for (const Spread *seconds :
             {&test.seconds.forward, &test.seconds.backward, &test.seconds.both}) {
            CHECK(seconds->samples.size() == 2);
            CHECK(seconds->min > 0);
        }
    }
    const std::string table = attention_table(report);
    for (const char *part : {"bf16 16 causal 33", "f32 16 full 5", "backward ms", "peak of f32"})
        CHECK(table.find(part) != std::string::npos);
    const auto json = attention_json(report);
    CHECK(json.at("tests").size() == 8);
    CHECK(json.at("tests").at(0).at("backward").at("samples").size() == 2);
}

TEST_CASE("operations and bytes of attention follow the usual counts") {
    const AttentionShape full{2, 8, 4, 64, 1024, false, KEEL_DTYPE_F16};
    CHECK(full.forward_flop() == 4.0 * 2 * 8 * 1024 * 1024 * 64);
    CHECK(full.backward_flop() == 2.5 * full.forward_flop());
    AttentionShape causal = full;
    causal.causal = true;
    CHECK(causal.forward_flop() == full.forward_flop() / 2);
    // q and out have 8 heads, k and v have 4
    const uint64_t tokens = 2 * 1024;
    CHECK(full.forward_bytes() == tokens * 64 * (2 * 8 + 2 * 4) * 2 + tokens * 8 * 4);
    CHECK(full.backward_bytes() == tokens * 64 * (4 * 8 + 4 * 4) * 2 + tokens * 8 * 4);
    CHECK(full.logits_bytes() == uint64_t{2} * 8 * 1024 * 1024 * 4);
}

TEST_CASE("a forward-only attention bench has no times of backward") {
    AttentionBenchOptions o = small_attention();
    o.backward = false;
    const AttentionBenchReport report = bench_attention([] { return open_backend("cpu"); }, o);
    CHECK(report.tests.at(0).seconds.backward.samples.empty());
    CHECK(attention_table(report).find("backward ms") == std::string::npos);
    CHECK(attention_json(report).at("tests").at(0).at("backward").is_null());
}

TEST_CASE("the attention bench refuses options without sense, with the option's name") {
    const auto refusal = [](const AttentionBenchOptions &o) {
        return test::error_text([&] { bench_attention([] { return open_backend("cpu"); }, o); },
                                ErrorKind::usage);
    };
    AttentionBenchOptions o = small_attention();
    o.kv_heads = 3;
    CHECK(refusal(o) == "kv heads: expected a divisor of 4 heads, found 3");
    o = small_attention();
    o.head_dims = {8};
    CHECK(refusal(o) == "head dim: expected 16 to 256, found 8");
    o = small_attention();
    o.lengths = {0};
    CHECK(refusal(o) == "length: expected 1 to 65536, found 0");
}
