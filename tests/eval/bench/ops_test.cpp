// Tests of `keel bench` for single ops: the work of an op is computed from its arguments.
#include "eval/bench/report.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace keel;

namespace {

std::unique_ptr<Pipeline> ops_tiny(std::vector<std::string> sets = {}) {
    sets.insert(sets.begin(), {std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                               "backend.plugin=cpu", "kv.dtype=f16"});
    return std::make_unique<Pipeline>(pipeline::config_from_overrides(sets));
}

BenchOptions small_ops() {
    BenchOptions o;
    o.prefill = {7, 30};
    o.depths = {0, 20};
    o.decode = 4;
    o.repeat = 1;
    o.probe_bytes = uint64_t{1} << 20;
    return o;
}

const OpTotal &part(const OpsResult &r, const std::string &name) {
    for (const OpTotal &op : r.ops) {
        if (op.part == name) return op;
    }
    FAIL("no part '" << name << "'");
    return r.ops.front();
}

double sum(const OpsResult &r, double OpTotal::*member) {
    double all = 0;
    for (const OpTotal &op : r.ops) all += op.*member;
    return all;
}

} // namespace

TEST_CASE("the ops of a prompt and of a token do the counted work and read the counted bytes") {
    for (const std::string weights : {"stored", "q4_0"}) {
        INFO(weights);
        const auto pipeline = ops_tiny({"model.weights=" + weights});
        BenchOptions options = small_ops();
        uint64_t last = 0, whole = 0;
        options.progress = [&](const char *, uint64_t done, uint64_t total) {
            last = done, whole = total;
        };
        const BenchReport r = run_bench(*pipeline, options);
        CHECK(last == whole);
        CHECK(whole == 7 + 30 + 1 + 4 + 20 + 4 + 30 + 20 + 4);
        REQUIRE(r.ops.size() == 2);
        const OpsResult &prompt = r.ops[0], &token = r.ops[1];
        CHECK(prompt.is_prefill);
        CHECK(prompt.tokens == 30);
        CHECK(sum(prompt, &OpTotal::flop) ==
              Approx(prefill_flop(pipeline->model(), 30)).epsilon(1e-12));
        CHECK(part(prompt, "down").calls == 6);
        CHECK(part(prompt, "output").calls == 1);
        CHECK(prompt.seconds == Approx(30 / r.prefill[1].rate.median));
        CHECK(prompt.read > 0);

        CHECK_FALSE(token.is_prefill);
        CHECK(token.depth == 20);
        CHECK(token.tokens == 4);
        const OpTotal &down = part(token, "down"), &attention = part(token, "attention");
        CHECK(down.op == "matmul");
        CHECK(down.calls == 6 * 4);
        CHECK(down.seconds > 0);
        CHECK(down.kernel.find("matmul") != std::string::npos);
        CHECK(down.flop == 2.0 * 768 * 256 * 6 * 4);
        const double row = weights == "q4_0" ? 768.0 / 32 * 18 : 768.0 * 2;
        // The bytes are each weight once, and the f32 inputs and outputs. `down` also reads the old
        // value of its output.
        CHECK(down.bytes == Approx((256 * row + 768 * 4 + 256 * 4 * 2) * 6 * 4).epsilon(1e-12));
        // K and V of 21 to 24 slots in f16, two heads of 64 elements. Queries and results of four
        // query heads.
        const double slots = 21 + 22 + 23 + 24;
        CHECK(attention.flop == 4.0 * 4 * 64 * slots * 6);
        CHECK(attention.bytes ==
              Approx((slots * 2 * 2 * 64 * 2 + 4 * 2.0 * 4 * 64 * 4) * 6).epsilon(1e-12));
        double weight_bytes = 0; // the other bytes of a token are few
        for (const OpTotal &op : token.ops) weight_bytes += op.op == "matmul" ? op.bytes / 4 : 0;
        CHECK(weight_bytes > static_cast<double>(r.weight_bytes_per_token) * 0.99);
        CHECK(weight_bytes < static_cast<double>(r.weight_bytes_per_token) * 1.1);
    }
}

TEST_CASE("attention under a policy is counted with the kept slots") {
    const auto pipeline = ops_tiny({"policy.plugin=sliding_window", "policy.budget.tokens=16"});
    BenchOptions options = small_ops();
    options.prefill = {};
    options.depths = {64};
    options.sequences = {1};
    const BenchReport r = run_bench(*pipeline, options);
    REQUIRE(r.ops.size() == 1);
    const OpTotal &attention = part(r.ops[0], "attention");
    CHECK(attention.calls == 6 * 4);
    CHECK(attention.flop >
          // counts the slots that the cache kept, not the 65 to 68 tokens
          4.0 * 4 * 64 * 16 * 6 * 4 * 0.9);
    CHECK(attention.flop < 4.0 * 4 * 64 * 40 * 6 * 4);
}

TEST_CASE("without `ops`, ops are not timed and not shown") {
    const auto pipeline = ops_tiny();
    BenchOptions options = small_ops();
    options.ops = false;
    const BenchReport r = run_bench(*pipeline, options);
    CHECK(r.ops.empty());
    CHECK(bench_table(r, "1").find("all ops") == std::string::npos);
    CHECK(bench_json(r, "1").at("ops").empty());
}

TEST_CASE("the table of ops has shares of the pass and of the machine, for tokens and prompts") {
    BenchReport r;
    r.peak_flops = 100e9;
    OpsResult prompt;
    prompt.is_prefill = true;
    prompt.tokens = 512;
    prompt.seconds = 0.5;
    prompt.read = 20e9;
    OpTotal down;
    down.part = "down", down.op = "matmul", down.kernel = "matmul q8_0 avx2";
    down.f32_peak_limits = true;
    down.calls = 6, down.seconds = 0.25, down.flop = 50e9, down.bytes = 1e9;
    OpTotal gather;
    gather.part = "gather", gather.op = "kv_gather", gather.kernel = "kv_gather";
    gather.calls = 2, gather.seconds = 0.125;
    OpTotal up = down;
    up.part = "up", up.kernel = "matmul q8_0 vnni fast", up.f32_peak_limits = false;
    prompt.ops = {down, up, gather};
    OpsResult token = prompt;
    token.is_prefill = false;
    token.tokens = 2;
    token.depth = 64;
    token.read = 0;
    r.ops = {prompt, token};
    const std::string text = ops_tables(r);
    INFO(text);
    const auto has = [&](const char *line) { return text.find(line) != std::string::npos; };
    CHECK(
        has("prefill of 512  calls     ms  share  GB/s  of read  GFLOP/s  of peak                 "
            "kernel\n"));
    CHECK(has(
        "down             6.00  250.0    50%  4.00      20%    200.0     200%       matmul q8_0 "
        "avx2\n"));
    // The peak of 8-bit products was not measured.
    CHECK(has("up               6.00  250.0    50%  4.00      20%    200.0        -  matmul q8_0 "
              "vnni fast\n"));
    CHECK(has("gather           2.00  125.0    25%     -        -        -        -              "
              "kv_gather\n"));
    CHECK(has("all ops         14.00  625.0   125%  3.20      16%    160.0        -"));
    CHECK(has("a token at 64  calls     ms"));
    CHECK(has("down            3.00  125.0    50%  4.00        -    200.0     200%"));
    const auto json = ops_json(r);
    CHECK(json.at(0).at("pass") == "prefill");
    CHECK(json.at(0).at("ops").at(0).at("of_bandwidth") == Approx(0.2));
    CHECK(json.at(0).at("ops").at(0).at("calls") == 6);
    CHECK(json.at(1).at("depth") == 64);
    CHECK(json.at(1).at("read_probe_bytes_per_second").is_null());
    CHECK(json.at(0).at("ops").at(0).at("of_peak") == Approx(2));
    CHECK(json.at(0).at("ops").at(1).at("of_peak").is_null());
    CHECK(json.at(1).at("ops").at(2).at("of_peak").is_null());
}
