// Mixtures of experts together with the other features of architectures: layer norms, norms after
// the feed-forward, parallel blocks, a factor of the residual stream, GELU. No supported
// architecture has these combinations, so the tests make configs that no file can have.
#include "graph/step_program.hpp"
#include "graph/step_rig.hpp"
#include "support/temp_folder.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;

namespace {

constexpr int64_t expert_count = 3;

struct Case {
    std::string dense; // a miniature
    bool is_shared;    // the mixture also has a shared expert
};

// Makes a mixture whose experts all have the matrices of the dense feed-forward of `m`. The weights
// of the chosen experts are normalized, so the mixture computes the dense feed-forward. With
// `is_shared`, the shared expert also has these matrices and its weight is 1/2, because its router
// is 0. Then the other experts have half of the dense down matrix.
std::vector<WrittenTensor> mixture_tensors(const Miniature &m, bool is_shared) {
    std::vector<WrittenTensor> out;
    for (const WrittenTensor &t : make_tensors(m)) {
        const size_t at = t.name.find(".mlp.");
        if (at == std::string::npos) {
            out.push_back(t);
            continue;
        }
        const std::string layer = t.name.substr(0, at), matrix = t.name.substr(at + 5);
        WrittenTensor one = t;
        if (is_shared) {
            one.name = layer + ".mlp.shared_expert." + matrix;
            out.push_back(one);
        }
        const bool is_down = matrix.starts_with("down");
        for (float &value : one.values) value *= is_down && is_shared ? 0.5F : 1;
        for (int64_t e = 0; e < expert_count; ++e) {
            one.name = fmt::format("{}.mlp.experts.{}.{}", layer, e, matrix);
            out.push_back(one);
        }
        if (!is_down) continue;
        const int64_t hidden = t.shape[0];
        out.push_back(make_tensor(
            {layer + ".mlp.gate.weight", {expert_count, hidden}, 0, 0.5F})); // the router
        if (is_shared)
            out.push_back({layer + ".mlp.shared_expert_gate.weight",
                           {1, hidden},
                           std::vector<float>(static_cast<size_t>(hidden), 0.0F)});
    }
    return out;
}

// Opens the mixture. `architecture` is that of the dense model, with the name of a router.
std::shared_ptr<const ModelSource> open_mixture(const std::filesystem::path &folder,
                                                const Case &kind, Architecture &architecture) {
    const Miniature m = read_miniature(kind.dense);
    write_miniature(folder, m, mixture_tensors(m, kind.is_shared));
    const auto opened = open_model_source(folder);
    ModelSource::Parts parts;
    parts.path = opened->path();
    parts.config = opened->config();
    parts.files = {std::make_shared<const MappedFile>(folder / "model.safetensors")};
    parts.tensors = opened->tensors();
    architecture = *parts.config.architecture;
    architecture.names.router = "mlp.gate";
    parts.config.architecture = &architecture;
    Experts &e = parts.config.experts;
    e.count = expert_count;
    e.used = 2;
    e.size = parts.config.intermediate_size;
    e.normalize = true;
    e.shared_size = kind.is_shared ? e.size : 0;
    return std::make_shared<const ModelSource>(std::move(parts));
}

std::shared_ptr<Device> reference_device() {
    return Device::open_reference(std::make_shared<HostServices>(1));
}

// Returns the logits of a prompt and of a batch. Checks that the residual stream is found after the
// embedding and after each layer, and nowhere else.
std::vector<float> checked_logits(StepRig &rig) {
    const ModelConfig &config = rig.weights.config();
    const int64_t per_step = config.layers + 1;
    int64_t found = 0;
    rig.executor.set_observer([&](const PlannedOp &op, const keel_op_args *args, bool after) {
        const keel_tensor *x = after ? residual_after(config, op, args) : nullptr;
        if (x == nullptr) return;
        CHECK(op.tag().layer == found % per_step - 1);
        CHECK(x->shape[1] == config.hidden_size);
        ++found;
    });
    std::vector<float> all = rig.logits();
    rig.executor.set_observer({});
    CHECK(found == 2 * per_step);
    return all;
}

} // namespace

TEST_CASE("a mixture of equal experts gives the logits of its dense model, in every family") {
    for (const Case &kind :
         {Case{"qwen3", false}, Case{"qwen3", true}, Case{"olmo2", false}, Case{"olmo2", true},
          Case{"granite", false}, Case{"granite", true}, Case{"cohere", false},
          Case{"cohere", true}, Case{"gemma2", false}, Case{"gemma2", true}}) {
        INFO(kind.dense << (kind.is_shared ? " with a shared expert" : ""));
        StepRig dense(miniature_folder(kind.dense, false), reference_device());
        const std::vector<float> expected = checked_logits(dense);
        const TempFolder folder;
        Architecture architecture = {};
        StepRig rig(open_mixture(folder.path() / "m", kind, architecture), reference_device());
        const std::vector<float> logits = checked_logits(rig);
        REQUIRE(logits.size() == expected.size());
        for (size_t i = 0; i < logits.size(); ++i) {
            INFO("logit " << i);
            CHECK(logits[i] == Approx(expected[i]).margin(1e-5));
        }
    }
}
