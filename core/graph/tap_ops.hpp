#pragma once

#include "graph/decoder.hpp"
#include "graph/step_tap.hpp"
#include "ops/executor.hpp"

#include <vector>

namespace keel {

// Ops of attention that also write by-products for a policy. They run instead of the plain ops,
// which write no by-products. All ops of this object write the same kinds of by-products
// (TapForms).
class TapOps {
  public:
    TapOps() = default; // an object without ops, for taps that need no by-products
    // `tokens`: the most tokens of a prefill step. `kv`: as for StepProgram. `untapped`: true for
    // each layer of the decoder that writes no by-products. If `untapped` is empty, all layers
    // write by-products.
    TapOps(Executor &executor, const Decoder &decoder, const TapForms &forms, uint32_t tokens,
           const keel_kv_view *kv, const std::vector<bool> &untapped = {});

    // Returns the op to run instead of the plain op with this role. NULL: run the plain op.
    PlannedOp *find(StepForm form, size_t layer, Role role) const;
    std::vector<const PlannedOp *> list() const;

  private:
    struct Layer {
        OpHandle qkv_prepare, attention;
    };
    static Layer plan(Executor &executor, const Decoder &decoder, const TapForms &forms,
                      StepForm form, size_t layer, uint32_t m, const keel_kv_view *kv);

    std::vector<Layer> decode_, prefill_; // by layer; empty: no ops
};

} // namespace keel
