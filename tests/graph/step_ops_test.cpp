// Compares the ops of each form of a step with recorded lists.
#include "graph/step_rig.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <map>

using namespace keel;
using namespace keel::test;

namespace {

using Lists = std::map<std::string, std::vector<std::string>>; // the key is "model: form"

const char *const golden_file = KEEL_SOURCE_DIR "/tests/golden/step_ops.txt";

Lists read_golden() {
    Lists lists;
    std::ifstream in(golden_file);
    std::vector<std::string> *list = nullptr;
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with("== ")) {
            list = &lists[line.substr(3)];
        } else if (list != nullptr) {
            list->push_back(line);
        }
    }
    return lists;
}

struct Model {
    std::string name;
    std::filesystem::path folder;
    std::optional<LayerRange> part;
};

std::vector<Model> models() {
    const auto biases = miniature_folder("llama_biases", true),
               gemma = miniature_folder("gemma3", false),
               experts = miniature_folder("qwen2moe", false);
    return {{"llama with biases, mixed types", biases, {}},
            {"its first layer", biases, LayerRange{0, 1}},
            {"its last layer", biases, LayerRange{1, 2}},
            {"gemma3", gemma, {}},
            {"qwen2moe", experts, {}}};
}

std::unique_ptr<StepRig> rig_of(const Model &model) {
    return std::make_unique<StepRig>(
        model.folder, Device::open_reference(std::make_shared<HostServices>(1)), model.part);
}

Lists lists_of(const Model &model) {
    Lists lists;
    const auto add = [&](const std::string &form, const auto &step) {
        const auto rig = rig_of(model);
        lists[model.name + ": " + form] = rig->ops_of([&] { step(*rig); });
    };
    const uint32_t rows = model.name == "its first layer" ? 0 : 2;
    add("prefill", [&](StepRig &rig) { rig.prefill(rows); });
    add("prefill without logits", [&](StepRig &rig) { rig.prefill(0); });
    add("tapped prefill", [&](StepRig &rig) { rig.prefill(rows, true); });
    add("decode", [&](StepRig &rig) { rig.decode(); });
    add("tapped decode", [&](StepRig &rig) { rig.decode(true); });
    if (model.part) return lists;
    add("batch", [&](StepRig &rig) { rig.decode_batch(); });
    add("tapped batch", [&](StepRig &rig) { rig.decode_batch(true); });
    return lists;
}

} // namespace

TEST_CASE("each form of a step runs the ops of the golden lists, with the same tensors") {
    Lists all;
    for (const Model &model : models()) all.merge(lists_of(model));
    if (std::getenv("KEEL_WRITE_GOLDEN") != nullptr) {
        std::ofstream out(golden_file);
        for (const auto &[name, list] : all) {
            out << "== " << name << "\n";
            for (const std::string &line : list) out << line << "\n";
        }
    }
    const Lists golden = read_golden();
    REQUIRE(golden.size() == all.size());
    for (const auto &[name, list] : all) {
        INFO(name);
        CHECK(list == golden.at(name));
    }
}
