#include "eval/compare/report.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace keel;

namespace {

pipeline::PipelineConfig tiny(const std::string &backend, std::vector<std::string> sets = {}) {
    sets.insert(sets.begin(), {std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                               "backend.plugin=" + backend});
    return pipeline::config_from_overrides(sets);
}

CompareOptions few(int64_t steps = 2) {
    CompareOptions o;
    o.prompt = {4094, 17, 300, 12, 999};
    o.steps = steps;
    return o;
}

std::vector<float> read_floats(const std::filesystem::path &file, bool is_bf16) {
    std::ifstream in(file, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    if (is_bf16) { // the upper halves of f32 numbers
        std::string wide;
        for (size_t i = 0; i + 1 < bytes.size(); i += 2) wide.append(2, '\0').append(bytes, i, 2);
        bytes = wide;
    }
    std::vector<float> out(bytes.size() / sizeof(float));
    std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
    return out;
}

const CompareRow &row(const CompareReport &r, const std::string &part) {
    for (const CompareRow &candidate : r.rows) {
        if (candidate.part == part) return candidate;
    }
    FAIL("no row " + part);
    throw;
}

} // namespace

TEST_CASE("the CPU plugin stays within its bounds of the reference, for all dtypes") {
    for (const std::vector<std::string> &sets : std::vector<std::vector<std::string>>{
             {"backend.params.compute=exact", "kv.dtype=f32"},
             {"model.weights=q4_0", "kv.dtype=q8_0"},
             {"model.weights=q8_0", "kv.key_dtype=f16", "kv.value_dtype=q4_0"}}) {
        INFO(sets[0]);
        Pipeline a(tiny("cpu", sets));
        std::vector<std::string> same = sets;
        std::erase(same, "backend.params.compute=exact");
        Pipeline b(tiny("reference", same));
        const CompareReport r = compare_pipelines(a, b, few());
        INFO(compare_table(r));
        CHECK(r.passed());
        CHECK(r.tokens == 7);
        // One prefill and two decode steps with 6 layers of 9 ops, the embedding, and 2 ops at the
        // end. One argmax for each decode step.
        CHECK(r.ops == 3 * (6 * 9 + 3) + 2);
        CHECK(row(r, "down").calls == 18);
        CHECK(row(r, "argmax").calls == 2);
        CHECK(r.logits.rows == 3);
        CHECK(r.logits.max_difference < 1);
        CHECK(r.logits.same_top >= 2);
    }
}

TEST_CASE("a wrong number is found in its op and layer, and nowhere else") {
    const test::TempFolder folder;
    Pipeline a(tiny(KEEL_WRONG_BACKEND));
    Pipeline b(tiny("reference"));
    CompareOptions options = few(3);
    options.save = folder / "found";
    const CompareReport r = compare_pipelines(a, b, options);
    INFO(compare_table(r));
    REQUIRE(r.finding);
    const CompareFinding &f = *r.finding;
    CHECK(f.label == "decode layer 3: down");
    CHECK(f.layer == 3);
    CHECK(f.op == "matmul");
    CHECK(f.step == "decode of token 5");
    CHECK(f.tensor == "out");
    CHECK(f.place == "[0, 17]");
    CHECK(f.a - f.b == Approx(0.5).epsilon(1e-4));
    CHECK(f.error > f.bound);
    CHECK(r.beyond == 3); // one op in each step; later ops get correct inputs
    for (const CompareRow &other : r.rows) CHECK(other.beyond == (other.part == "down" ? 3 : 0));
    CHECK(r.logits.max_difference > 1e-3); // without correct inputs, the error shows in the logits

    // The saved files are enough to run the op again.
    std::ifstream in(folder / "found" / "op.json");
    const auto json = nlohmann::json::parse(in);
    CHECK(json.at("format") == "keel-op/1");
    CHECK(json.at("op") == "matmul");
    CHECK(json.at("label") == "decode layer 3: down");
    CHECK(json.at("features") == KEEL_MATMUL_ACCUMULATE);
    CHECK(json.at("finding").at("place") == "[0, 17]");
    std::map<std::string, std::vector<float>> tensors;
    for (const auto &tensor : json.at("tensors")) {
        const std::string role = tensor.at("role"), name = tensor.at("name"),
                          dtype = tensor.at("dtype");
        REQUIRE(dtype == (name == "weight" ? "bf16" : "f32")); // weights have their own dtype
        tensors[role + " " + name] =
            read_floats(folder / "found" / tensor.at("file").get<std::string>(), dtype == "bf16");
    }
    const auto &x = tensors.at("in x"), &w = tensors.at("in weight"),
               &before = tensors.at("in_out out"), &expected = tensors.at("expected out"),
               &actual = tensors.at("actual out");
    REQUIRE(x.size() == 768);
    REQUIRE(w.size() == 256 * 768);
    REQUIRE(before.size() == 256);
    double worst = 0;
    for (size_t n = 0; n < 256; ++n) {
        double sum = before[n];
        for (size_t k = 0; k < 768; ++k) sum += static_cast<double>(x[k]) * w[n * 768 + k];
        worst = std::max(worst, std::abs(sum - expected[n]));
    }
    CHECK(worst < 1e-5);
    CHECK(actual[17] - expected[17] == Approx(0.5).epsilon(1e-4));
    CHECK(actual[18] == expected[18]);
}

TEST_CASE("if results are not handed over, an error spreads to later layers") {
    Pipeline a(tiny(KEEL_WRONG_BACKEND));
    Pipeline b(tiny("reference"));
    CompareOptions options = few(1);
    options.resync = false;
    const CompareReport r = compare_pipelines(a, b, options);
    REQUIRE(r.finding);
    CHECK(r.finding->label == "decode layer 3: down");
    CHECK(r.finding->saved.empty());
    CHECK(r.beyond > 10);
    CHECK(row(r, "output").beyond == 1);
}

TEST_CASE("a user's bound applies to every op") {
    Pipeline a(tiny("cpu"));
    Pipeline b(tiny("reference"));
    CompareOptions options = few(0);
    options.bound = 0;
    const CompareReport r = compare_pipelines(a, b, options);
    REQUIRE(r.finding);
    CHECK(r.finding->bound == 0);
    options.bound = 10;
    CHECK(compare_pipelines(a, b, options).passed());
}

TEST_CASE("other weights or another cache dtype widen the bounds") {
    Pipeline a(tiny("cpu", {"model.weights=q8_0", "kv.dtype=q8_0"}));
    Pipeline b(tiny("cpu"));
    const CompareReport r = compare_pipelines(a, b, few());
    INFO(compare_table(r));
    CHECK(r.passed());
    CHECK(row(r, "qkv").worst > 1e-4);
    CHECK(row(r, "qkv prepare").worst > 1e-4);
    CHECK(r.logits.mean_kl > 0);
    CHECK(r.logits.mean_kl < 0.1);
}

TEST_CASE("the same slots are evicted on both sides") {
    const std::vector<std::string> window{"policy.plugin=sliding_window", "policy.budget.tokens=6",
                                          "policy.budget.slack=2"};
    Pipeline a(tiny("cpu", window));
    Pipeline b(tiny("reference", window));
    CompareOptions options = few(8);
    const CompareReport r = compare_pipelines(a, b, options);
    INFO(compare_table(r));
    CHECK(r.passed());
    CHECK(row(r, "kv: compaction").op == "kv_gather");
    CHECK(row(r, "kv: compaction").calls > 0);
}

TEST_CASE("a cache that grows by copying can be compared with a cache in reserved memory") {
    Pipeline a(tiny(KEEL_WRONG_BACKEND)); // this backend is wrong only in decode steps
    Pipeline b(tiny("reference"));
    CompareOptions options = few(0);
    options.prompt.assign(200, 17);
    const CompareReport r = compare_pipelines(a, b, options);
    INFO(compare_table(r));
    CHECK(r.passed());
    CHECK(r.tokens == 200);
}

TEST_CASE("pipelines that compute different things are refused") {
    Pipeline a(tiny("cpu"));
    PipelineOptions no_tokenizer;
    no_tokenizer.need_tokenizer = false;
    const std::vector<std::string> other{std::string("model.path=") + KEEL_SOURCE_DIR +
                                             "/tests/golden/mini_plain",
                                         "backend.plugin=cpu"};
    Pipeline mini(pipeline::config_from_overrides(other), no_tokenizer);
    CHECK(test::error_text([&] { compare_pipelines(a, mini, few()); }).find("number of layers") !=
          std::string::npos);
    Pipeline window(tiny("cpu", {"policy.plugin=sliding_window", "policy.budget.tokens=64"}));
    CHECK(test::error_text([&] { compare_pipelines(a, window, few()); }).find("policy") !=
          std::string::npos);
    CompareOptions bad = few();
    bad.prompt = {4096};
    CHECK(test::error_text([&] { compare_pipelines(a, a, bad); }, ErrorKind::usage)
              .find("not in the vocabulary (0 to 4095)") != std::string::npos);
    bad.prompt = {};
    test::error_text([&] { compare_pipelines(a, a, bad); }, ErrorKind::usage);
    bad = few(3000);
    CHECK(
        test::error_text([&] { compare_pipelines(a, a, bad); }, ErrorKind::usage).find("context") !=
        std::string::npos);
}
