#include "eval/compare/compare.hpp"
#include "eval/compare/op_dump.hpp"
#include "eval/replay/replay.hpp"
#include "support/contains.hpp"
#include "support/error_text.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

using namespace keel;
using test::contains;

namespace {

namespace fs = std::filesystem;

pipeline::PipelineConfig tiny_on(const std::string &backend, std::vector<std::string> sets = {}) {
    sets.insert(sets.begin(), {std::string("model.path=") + KEEL_SOURCE_DIR + "/models/tiny",
                               "backend.plugin=" + backend});
    return pipeline::config_from_overrides(sets);
}

std::shared_ptr<Device> device_named(const std::string &name) {
    const std::vector<std::string> sets{"model.path=.", "backend.plugin=" + name};
    return open_device(pipeline::config_from_overrides(sets).backend,
                       std::make_shared<HostServices>());
}

// Saves every kind of op in a step of models/tiny, with the results that the pipeline computed.
std::vector<fs::path> save_all(Pipeline &pipeline, const fs::path &folder) {
    std::set<std::string> seen;
    std::vector<fs::path> saved;
    std::unique_ptr<OpDump> dump;
    pipeline.executor().set_observer([&](const PlannedOp &op, const keel_op_args *args,
                                         bool after) {
        if (!after) {
            dump = std::make_unique<OpDump>(pipeline.device(), op, args);
            return;
        }
        const std::string kind = std::string(op_name(op.op())) + "-" + std::to_string(saved.size());
        if (!seen.insert(op_name(op.op())).second) return;
        dump->complete(pipeline, op, args);
        for (const OpOutput &output : read_outputs(pipeline.device(), op.op(), args))
            dump->add_values("actual", output.values);
        dump->write(folder / kind, {{"step", "a test"}, {"backend", "cpu"}, {"against", ""}});
        saved.push_back(folder / kind);
    });
    Session session(pipeline);
    session.prefill(std::vector<int32_t>{4094, 12, 700, 31, 5});
    seen.clear(); // the same for a decode step
    session.decode(77);
    (void)session.greedy();
    pipeline.executor().set_observer({});
    return saved;
}

// A saved matmul that a test can damage.
class Saved {
  public:
    Saved() {
        Pipeline a(tiny_on(KEEL_WRONG_BACKEND)), b(tiny_on("reference"));
        CompareOptions options;
        options.prompt = {4094, 5, 6};
        options.steps = 1;
        options.save = folder_ / "op";
        (void)compare_pipelines(a, b, options);
    }
    fs::path path() const { return folder_ / "op"; }
    nlohmann::json json() const {
        std::ifstream in(path() / "op.json");
        return nlohmann::json::parse(in);
    }
    std::string refused(const nlohmann::json &json) const { return refused_text(json.dump()); }
    std::string refused_text(const std::string &text) const {
        std::ofstream(path() / "op.json") << text;
        return test::error_text([&] {
            replay_op(load_saved_op(path()),
                      Device::open_reference(std::make_shared<HostServices>()), {});
        });
    }

  private:
    test::TempFolder folder_;
};

} // namespace

TEST_CASE("every op of a step is repeated on the backend that it was saved from") {
    const std::string kv = GENERATE("f16", "q8_0");
    const test::TempFolder folder;
    Pipeline pipeline(tiny_on("cpu", {"kv.dtype=" + kv,
                                      "model.weights=" + std::string(kv == "f16" ? "bf16" : "q4_0"),
                                      "backend.params.compute=exact"}));
    const auto saved = save_all(pipeline, folder.path());
    REQUIRE(saved.size() >= 12);
    const auto host = std::make_shared<HostServices>();
    for (const fs::path &path : saved) {
        INFO(path.string());
        const ReplayReport r =
            replay_op(load_saved_op(path), pipeline.device().shared_from_this(), {});
        INFO(replay_text(r));
        CHECK(r.passed());
        CHECK_FALSE(r.weight_as_f32);
        REQUIRE_FALSE(r.outputs.empty());
        for (const ReplayOutput &o : r.outputs) {
            REQUIRE(o.saved_error);
            CHECK(*o.saved_error <= std::max(o.bound, 1e-12));
        }
    }
}

TEST_CASE("a fault repeats on its backend and not on others") {
    const Saved saved;
    const SavedOp op = load_saved_op(saved.path());
    CHECK(op.label == "decode layer 3: down");
    const ReplayReport cpu = replay_op(op, device_named("cpu"), {});
    INFO(replay_text(cpu));
    CHECK(cpu.outputs.at(0).name == "out");
    REQUIRE(cpu.outputs[0].saved_error);
    CHECK(*cpu.outputs[0].saved_error > 0.004); // the saved result is wrong
    CHECK(replay_op(op, device_named("reference"), {}).passed());
    ReplayOptions none;
    none.bound = 0;
    CHECK(replay_op(op, device_named("reference"), none).passed());
    const auto json = replay_json(cpu, "1");
    CHECK(json.at("op") == "matmul");
    CHECK(json.at("outputs").at(0).at("saved_error") > 0.004);
}

TEST_CASE("invalid saved ops are refused before anything is allocated") {
    const Saved saved;
    const nlohmann::json good = saved.json();
    const auto change = [&](auto edit) {
        nlohmann::json json = good;
        edit(json);
        return saved.refused(json);
    };
    using J = nlohmann::json;
    CHECK(contains(saved.refused_text("{"), "op.json:1:2: not valid JSON"));
    CHECK(contains(saved.refused_text("[1]"), "expected a JSON object"));
    CHECK(contains(saved.refused_text(std::string(100000, '[')), "op.json"));
    CHECK(contains(change([](J &j) { j["format"] = "keel-op/9"; }), "keel-op/1"));
    CHECK(contains(change([](J &j) { j["op"] = "mat\nmul"; }), "unknown op"));
    CHECK(contains(change([](J &j) { j["op"] = "kv_gather"; }), "needs"));
    CHECK(contains(change([](J &j) { j["op"] = "attention"; }), "needs"));
    CHECK(contains(change([](J &j) { j.erase("outputs"); }), "earlier version"));
    CHECK(contains(change([](J &j) { j["features"] = -1; }), "features"));
    change([](J &j) { j["features"] = uint64_t{1} << 40; });
    CHECK(contains(change([](J &j) { j["scalars"]["weight_dtype"] = 77; }), "weight_dtype"));
    CHECK(contains(change([](J &j) { j["scalars"] = {{"x", "y"}}; }), "scalars.x: "));
    CHECK(contains(change([](J &j) { j["tensors"][0]["shape"] = {1 << 20, 1 << 20}; }), "larger"));
    CHECK(contains(change([](J &j) { j["tensors"][0]["shape"] = {-1, 3}; }), "shape"));
    CHECK(contains(change([](J &j) { j["tensors"][0]["shape"] = {1, 1, 1, 1, 1}; }), "dimensions"));
    CHECK(contains(change([](J &j) { j["tensors"][0]["shape"] = {1, 767}; }), "bytes"));
    CHECK(contains(change([](J &j) { j["tensors"][0]["shape"] = {768, 1}; }), "is not consistent"));
    CHECK(contains(change([](J &j) { j["tensors"][0]["dtype"] = "q4_0"; }), "bytes"));
    CHECK(contains(change([](J &j) { j["tensors"][0]["dtype"] = "f99"; }), "f99"));
    CHECK(contains(change([](J &j) { j["tensors"][0]["file"] = "../op/op.json"; }), "file's name"));
    CHECK(contains(change([](J &j) { j["tensors"][0]["file"] = "/etc/passwd"; }), "file's name"));
    CHECK(
        contains(change([](J &j) { j["tensors"][0]["file"] = "nothing.bin"; }), "does not exist"));
    CHECK(contains(change([](J &j) { j["tensors"][0]["file"] = nullptr; }), "too large"));
    CHECK(contains(change([](J &j) { j["outputs"][0]["shape"] = {1 << 20, 5000}; }), "larger"));
    J many = good;
    for (int i = 0; i < 100; ++i) many["tensors"].push_back(many["tensors"][0]);
    CHECK(contains(saved.refused(many), "at most 64"));
}

TEST_CASE("differences between dtypes are given by layer") {
    Pipeline a(tiny_on("cpu", {"model.weights=q4_0"})), b(tiny_on("cpu", {"model.weights=f16"}));
    CompareOptions options;
    options.prompt = {4094, 5, 6, 9};
    options.steps = 2;
    const CompareReport r = compare_pipelines(a, b, options);
    CHECK(r.is_across_dtypes);
    CHECK(r.passed());
    REQUIRE(r.layers.size() == 7); // the embedding and six layers
    CHECK(r.layers[0].layer == -1);
    CHECK(r.layers[6].layer == 5);
    for (const CompareLayer &layer : r.layers) {
        CHECK(layer.relative() > 1e-3);
        CHECK(layer.relative() < 0.5);
    }
    for (const CompareRow &row : r.rows) CHECK(row.relative() < 0.5);
}
