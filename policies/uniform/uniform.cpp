// A budget allocator that gives every head of every layer the same budget.
#include <keel/sdk_policy.hpp>

namespace {

using namespace keel::sdk;

class Uniform {
  public:
    static constexpr PluginInfo info = {"uniform", "0.1.0", "Keel", "MIT",
                                        "Gives every head of every layer the same budget."};

    Uniform(const Setup &, keel_allocator_needs &) {}

    void allocate(const keel_allocator_input &in, int32_t *budgets) {
        std::fill_n(budgets, static_cast<int64_t>(in.layers) * in.kv_heads,
                    static_cast<int32_t>(in.budget));
    }
};

} // namespace

KEEL_ALLOCATOR_PLUGIN(Uniform)
