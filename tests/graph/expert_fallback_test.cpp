// Mixtures of experts on a backend that lacks the ops of experts.
#include "graph/step_rig.hpp"
#include "support/error_text.hpp"
#include "support/wrapping_backend.hpp"

#include <catch2/catch.hpp>

using namespace keel;
using namespace keel::test;

TEST_CASE("a backend without the ops of experts gives the same logits, with a fallback") {
    for (const std::string name : {"qwen2moe", "mixtral"}) {
        const auto folder = miniature_folder(name, false);
        StepRig alone(folder, Device::open_reference(std::make_shared<HostServices>(1)));
        const std::vector<float> expected = alone.logits();
        for (const std::vector<std::string> &missing :
             {std::vector<std::string>{"choose_experts"},
              {"expert_matmul"},
              {"choose_experts", "expert_matmul", "buffer_map"},
              {"expert_matmul", "weight_prepare"}}) {
            INFO(name << " without " << missing.front());
            WrappingBackend w;
            for (const std::string &slot : missing) w.hide(slot);
            {
                StepRig rig(folder, w.open());
                CHECK(rig.logits() == expected);
                CHECK(rig.executor.any_fallback());
                for (const PlannedOp *op : rig.graph.ops(StepForm::decode)) {
                    const bool hidden = std::find(missing.begin(), missing.end(),
                                                  op_name(op->op())) != missing.end();
                    CHECK((op->rung() == Rung::reference) == hidden);
                    if (hidden) CHECK(op->reason() == "the backend does not have this op");
                }
            }
            CHECK(w.live().none());
        }
        WrappingBackend plain; // has the ops, but no layout of its own for weights
        plain.hide("weight_prepare");
        StepRig rig(folder, plain.open());
        CHECK(rig.logits() == expected);
        CHECK_FALSE(rig.executor.any_fallback());
    }
}
