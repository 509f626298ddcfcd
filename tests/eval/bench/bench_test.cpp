#include "eval/bench/report.hpp"
#include "support/error_text.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace keel;

namespace {

constexpr uint64_t mib = uint64_t{1} << 20;

pipeline::PipelineConfig tiny(std::vector<std::string> sets = {}) {
    sets.insert(sets.begin(), {std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                               "backend.plugin=cpu", "strict=true"});
    return pipeline::config_from_overrides(sets);
}

BenchOptions small() {
    BenchOptions o;
    o.prefill = {1, 24};
    o.depths = {0, 20};
    o.decode = 4;
    o.repeat = 2;
    o.probe_bytes = mib;
    o.ops = false; // bench_ops_test.cpp tests the ops
    return o;
}

} // namespace

TEST_CASE("a spread is the median and the median distance from the median") {
    const Spread odd = Spread::of({5, 1, 2, 100, 3});
    CHECK(odd.median == 3);
    CHECK(odd.deviation == 2);
    CHECK(odd.min == 1);
    CHECK(odd.max == 100);
    CHECK(odd.samples == std::vector<double>{5, 1, 2, 100, 3});
    CHECK(Spread::of({4, 2}).median == 3);
    CHECK(Spread::of({}).median == 0);
}

TEST_CASE("a prompt takes two operations for each weight, and the causal half of attention") {
    const Pipeline pipeline(tiny());
    // The model has 6 layers with hidden size 256, feed-forward size 768, 4 heads of 64 elements, 2
    // KV heads, and a vocabulary of 4096.
    const double layer = 256.0 * (256 + 2 * 128) + 256.0 * 256 + 3 * 256.0 * 768;
    const double one = 2 * 6 * layer + 2 * 256.0 * 4096 + 4 * 6 * 256.0;
    CHECK(prefill_flop(pipeline.model(), 1) == one);
    const double ten = 2 * 6 * 10 * layer + 2 * 256.0 * 4096 + 4 * 6 * 256.0 * 55;
    CHECK(prefill_flop(pipeline.model(), 10) == ten);
}

TEST_CASE("a measurement has a result for every length, and describes the machine") {
    Pipeline pipeline(tiny({"kv.dtype=f32", "backend.params.compute=exact"}));
    BenchOptions options = small();
    uint64_t calls = 0, last = 0, whole = 0;
    options.progress = [&](const char *, uint64_t done, uint64_t total) {
        CHECK(done >= last);
        last = done;
        whole = total;
        ++calls;
    };
    const BenchReport r = run_bench(pipeline, options);
    CHECK(last == whole);
    CHECK(whole == 2 * (1 + 24 + 1 + 4 + 20 + 4));
    CHECK(calls > 8);
    REQUIRE(r.prefill.size() == 2);
    CHECK(r.prefill[1].tokens == 24);
    CHECK(r.prefill[1].rate.samples.size() == 2);
    CHECK(r.prefill[1].of_peak.has_value());
    REQUIRE(r.decode.size() == 2);
    const DecodeResult &d = r.decode[1];
    CHECK(d.depth == 20);
    CHECK(d.rate.samples.size() == 2);
    CHECK(d.probe.samples.size() == 2);
    CHECK(d.of_bandwidth.has_value());
    CHECK(d.submits == 1);
    CHECK(d.waits == 1);
    // 20 to 24 slots, which is 22 on average. K and V are f32, with 2 heads of 64 elements in 6
    // layers.
    CHECK(d.kv_read_per_token == 22 * 2 * 4 * 64 * 2 * 6);
    CHECK(d.kv_bytes >= 24 * 2 * 4 * 64 * 2 * 6);
    CHECK(d.policy_bytes == 0);
    CHECK(d.held_peak_bytes == d.kv_bytes);
    CHECK(r.prefill[1].held_peak_bytes == d.kv_bytes); // both hold 24 tokens
    CHECK(d.bytes_per_second ==
          Approx(d.rate.median *
                 static_cast<double>(r.weight_bytes_per_token + d.kv_read_per_token)));
    CHECK(r.probe_bytes > 0);
    CHECK(r.read_plain > 0);
    CHECK(r.peak_flops > 0);
    CHECK(r.fallbacks == 0);
    CHECK(r.weights == "bf16");
    CHECK(r.backend == "cpu");
    CHECK(r.peak_resident_bytes > mib);
}

TEST_CASE("the f32 peak is a limit only for exact products") {
    const auto share = [](const std::string &compute) {
        Pipeline pipeline(tiny({"model.weights=q8_0", "backend.params.compute=" + compute}));
        BenchOptions options = small();
        options.prefill = {24};
        options.depths = {};
        options.repeat = 1;
        const BenchReport r = run_bench(pipeline, options);
        CHECK(r.peak_flops > 0);
        return r.prefill.at(0).of_peak;
    };
    CHECK(share("exact").has_value());
    CHECK_FALSE(share("fast").has_value());
}

TEST_CASE("without probes there are no ratios") {
    Pipeline pipeline(tiny());
    BenchOptions options = small();
    options.prefill = {};
    options.depths = {0};
    options.repeat = 1;
    options.probe_bytes = 0;
    const BenchReport r = run_bench(pipeline, options);
    CHECK(r.prefill.empty());
    CHECK(r.probe_isa.empty());
    REQUIRE(r.decode.size() == 1);
    CHECK_FALSE(r.decode[0].of_bandwidth);
    const auto json = bench_json(r, "1.2.3");
    CHECK(json.at("probe").is_null());
    CHECK(json.at("decode").at(0).at("of_bandwidth").is_null());
    CHECK(json.at("decode").at(0).at("read_probe_bytes_per_second").is_null());
    const std::string table = bench_table(r, "1.2.3");
    CHECK(table.find("without probes") != std::string::npos);
    CHECK(table.find("+-") == std::string::npos); // one reading has no spread
}

TEST_CASE("the table is aligned, and the JSON object has all its numbers") {
    BenchReport r;
    r.cpu = "A Processor";
    r.threads = 2;
    r.memory_bytes = 24 << 20;
    r.backend = "cpu";
    r.device = "d";
    r.description = "avx2";
    r.sync = "lazy";
    r.model = "m";
    r.architecture = "LlamaForCausalLM";
    r.weights = "q4_0";
    r.policy = "none";
    r.parameters = 1100000000;
    r.key_dtype = KEEL_DTYPE_Q8_0;
    r.value_dtype = KEEL_DTYPE_F16;
    r.fallbacks = 3;
    r.probe_isa = "avx2";
    r.threads = 2;
    r.read_plain = 10e9;
    r.read_prefetched = 12e9;
    r.peak_flops = 200e9;
    PrefillResult p;
    p.tokens = 512;
    p.rate = Spread::of({1500, 1500, 1530});
    p.flops = 50e9;
    p.of_peak = 0.25;
    p.held_peak_bytes = 9 << 20;
    r.prefill.push_back(p);
    DecodeResult d;
    d.depth = 2048;
    d.tokens = 64;
    d.rate = Spread::of({25, 20, 40});
    d.bytes_per_second = 9e9;
    d.of_bandwidth = 0.75;
    d.submits = 1;
    d.kv_bytes = 2 << 20;
    d.policy_bytes = 1 << 20;
    d.held_peak_bytes = 12 << 20;
    r.decode.push_back(d);
    const std::string text = bench_table(r, "1.2.3");
    INFO(text);
    const auto has = [&](const char *part) { return text.find(part) != std::string::npos; };
    CHECK(has("keel 1.2.3\n"));
    CHECK(has("machine: A Processor, 2 processors, 24.0 MiB\n"));
    CHECK(has("1.10 B parameters"));
    CHECK(has("KV q8_0 and f16"));
    CHECK(has("3 planned ops do not run on the backend"));
    CHECK(has("512 tokens      1500  +-0.0%  1500..1530  341.3    50.00      25%    9.0 MiB\n"));
    CHECK(has("64 tokens at 2048     25.00  +-20.0%  20.00..40.00     40.00  9.00      75%  3.0 "
              "MiB   12.0 MiB"));
    CHECK(bench_json(r, "1").at("decode").at(0).at("held_bytes") == 3 << 20);
    CHECK(has("read 12.00 GB/s (10.00 plain, 12.00 with prefetch"));
    const auto json = bench_json(r, "1.2.3");
    CHECK(json.at("version") == "1.2.3");
    CHECK(json.at("probe").at("read_bytes_per_second") == 12e9);
    CHECK(json.at("prefill").at(0).at("tokens_per_second").at("median") == 1500);
    CHECK(json.at("prefill").at(0).at("of_peak") == 0.25);
    CHECK(json.at("decode").at(0).at("tokens_per_second").at("samples").size() == 3);
    CHECK(json.at("decode").at(0).at("depth") == 2048);
    CHECK(json.at("kv").at("key_dtype") == "q8_0");
    CHECK(json.at("backend").at("fallback_ops") == 3);
}

TEST_CASE("several sequences at once are measured, and one sequence too") {
    PipelineOptions pipeline_options;
    pipeline_options.batch = 3;
    Pipeline pipeline(tiny(), pipeline_options);
    BenchOptions options = small();
    options.prefill.clear();
    options.depths = {0, 20};
    options.sequences = {1, 3};
    uint64_t last = 0, whole = 0;
    options.progress = [&](const char *, uint64_t done, uint64_t total) {
        last = done;
        whole = total;
    };
    const BenchReport r = run_bench(pipeline, options);
    CHECK(last == whole);
    CHECK(whole == 2 * (1 + 3) * (1 + 4 + 20 + 4));
    REQUIRE(r.decode.size() == 4);
    const DecodeResult &one = r.decode[2], &three = r.decode[3];
    CHECK(one.sequences == 1);
    CHECK_FALSE(one.of_one.has_value());
    CHECK(three.sequences == 3);
    CHECK(three.depth == 20);
    CHECK(three.of_one.has_value());
    CHECK(three.rate.samples.size() == 2);
    CHECK(three.kv_bytes == 3 * one.kv_bytes);
    CHECK(three.held_peak_bytes == 3 * one.held_peak_bytes);
    CHECK(three.kv_read_per_token == one.kv_read_per_token);
    CHECK(three.submits == one.submits);
    const std::string text = bench_table(r, "1");
    INFO(text);
    CHECK(text.find("decode at once") != std::string::npos);
    CHECK(text.find("3 sequences, 4 tokens at 20") != std::string::npos);
    const auto json = bench_json(r, "1");
    CHECK(json.at("decode").at(3).at("sequences") == 3);
    CHECK(json.at("decode").at(2).at("of_one").is_null());
    options.sequences = {4};
    CHECK_THROWS_AS(run_bench(pipeline, options), Error);
}

TEST_CASE("impossible measurements are refused before anything runs") {
    Pipeline pipeline(tiny({"model.context=64"}));
    const auto refused = [&](auto change) {
        BenchOptions options = small();
        change(options);
        return test::error_text([&] { run_bench(pipeline, options); }, ErrorKind::usage);
    };
    CHECK(refused([](BenchOptions &o) {
              o.prefill = {65};
          }).find("prefill of 65 needs a context of 65") != std::string::npos);
    CHECK(refused([](BenchOptions &o) { o.depths = {61}; }).find("model.context") !=
          std::string::npos);
    CHECK(refused([](BenchOptions &o) { o.prefill = {0}; }).find("--prefill: ") !=
          std::string::npos);
    CHECK(refused([](BenchOptions &o) { o.depths = {-1}; }).find("--depth: ") != std::string::npos);
    CHECK(refused([](BenchOptions &o) { o.repeat = 0; }).find("--repeat: ") != std::string::npos);
    CHECK(refused([](BenchOptions &o) { o.decode = -1; }).find("--decode: ") != std::string::npos);
    refused([](BenchOptions &o) {
        o.prefill = {};
        o.decode = 0;
    });
    CHECK(default_prefill(64) == std::vector<int64_t>{32});
    CHECK(default_prefill(600) == std::vector<int64_t>{128, 512});
    CHECK(default_depths(600, 64) == std::vector<int64_t>{0, 512});
    CHECK(default_depths(500, 64) == std::vector<int64_t>{0});
    CHECK(default_depths(20, 64).empty());
}

TEST_CASE("a request to stop ends a measurement") {
    Pipeline pipeline(tiny());
    BenchOptions options = small();
    options.progress = [&](const char *, uint64_t done, uint64_t) {
        if (done > 0) pipeline.host().request_cancel();
    };
    CHECK(test::error_text([&] { run_bench(pipeline, options); }, ErrorKind::runtime) ==
          "cancelled");
}
