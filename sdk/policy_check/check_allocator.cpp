#include "policy_check/check.hpp"

#include <algorithm>
#include <limits>
#include <memory>

namespace keel::policy_check {
namespace {

struct AllocatorCase {
    std::string name;
    std::vector<int32_t> lengths; // [layers * kv_heads]
    int64_t budget, protected_slots;
    double low = 0, high = 1; // range of the scores
};

class AllocatorChecker {
  public:
    AllocatorChecker(const PluginLibrary &plugin, const ParamValues &params, const Model &model,
                     uint64_t seed, Report &report)
        : table_(plugin.allocator()), params_(params), model_(model), geometry_(model), seed_(seed),
          report_(report) {}
    void run();

  private:
    struct State {
        State(const keel_allocator &a_table, keel_allocator_state *a_state)
            : table(a_table), state(a_state) {}
        State(const State &) = delete;
        ~State() { table.destroy(state); }
        const keel_allocator &table;
        keel_allocator_state *state;
    };
    using StatePtr = std::unique_ptr<State>;

    size_t rows() const { return size_t{model_.layers} * model_.kv_heads; }
    void expect(bool holds, const std::string &what) {
        report_.expect(holds, model_.name() + ": " + what);
    }
    StatePtr make(keel_allocator_needs &needs, const keel_geometry *geometry);
    StatePtr make() {
        keel_allocator_needs needs = {KEEL_HEADER(keel_allocator_needs)};
        return make(needs, &geometry_.c);
    }
    std::vector<AllocatorCase> cases() const;
    std::vector<int32_t> ask(State &state, const AllocatorCase &of, float garbage, uint32_t size);
    void check_case(const AllocatorCase &of);

    const keel_allocator &table_;
    const ParamValues &params_;
    Model model_;
    ModelGeometry geometry_;
    uint64_t seed_;
    Report &report_;
    HostServices host_{1};
    keel_allocator_needs needs_ = {KEEL_HEADER(keel_allocator_needs)};
};

AllocatorChecker::StatePtr AllocatorChecker::make(keel_allocator_needs &needs,
                                                  const keel_geometry *geometry) {
    HostServices::drop_error();
    keel_allocator_state *state = nullptr;
    const keel_status status =
        table_.create(host_.table(), geometry, params_.data(), params_.size(), &needs, &state);
    if (!passed(report_, status, model_.name() + ": create")) return nullptr;
    return std::make_unique<State>(table_, state);
}

std::vector<AllocatorCase> AllocatorChecker::cases() const {
    const auto same = [&](int32_t n) { return std::vector<int32_t>(rows(), n); };
    std::vector<int32_t> ragged;
    const int32_t some[] = {90, 1, 0, 43, 17, 64, 2, 100};
    for (size_t i = 0; i < rows(); ++i) ragged.push_back(some[i % 8]);
    return {{"100 slots, budget 30", same(100), 30, 4},
            {"nothing protected", same(100), 31, 0},
            {"a budget of one", same(50), 1, 0},
            {"all of the budget protected", same(60), 12, 12},
            {"as many slots as the budget", same(25), 25, 3},
            {"fewer slots than the budget", same(25), 1000, 3},
            {"no slots", same(0), 9, 2},
            {"one slot", same(1), 1, 1},
            {"ragged lengths", ragged, 21, 3},
            {"fewer slots than are protected", ragged, 50, 45},
            {"equal scores", same(80), 27, 4, 1, 1},
            {"zero scores", same(80), 27, 4, 0, 0},
            {"scores below zero", same(80), 27, 4, -5, -1},
            {"large scores", same(80), 27, 4, 0, 1e30}};
}

// Returns the budgets. Returns an empty list if the allocator refuses the call.
std::vector<int32_t> AllocatorChecker::ask(State &state, const AllocatorCase &of, float garbage,
                                           uint32_t size) {
    const int32_t longest = *std::max_element(of.lengths.begin(), of.lengths.end());
    const size_t stride = static_cast<size_t>(longest) + 2;
    std::vector<std::vector<float>> scores(model_.layers,
                                           std::vector<float>(model_.kv_heads * stride, garbage));
    std::vector<std::vector<uint8_t>> masks(model_.layers,
                                            std::vector<uint8_t>(model_.kv_heads * stride, 0));
    std::vector<const float *> score_rows;
    std::vector<const uint8_t *> mask_rows;
    for (uint32_t l = 0; l < model_.layers; ++l) {
        for (size_t h = 0; h < model_.kv_heads; ++h) {
            for (int32_t t = 0; t < of.lengths[l * model_.kv_heads + h]; ++t) {
                const size_t cell = h * stride + static_cast<size_t>(t);
                const double x = uniform(seed_ + l, cell);
                scores[l][cell] = static_cast<float>(of.low + (of.high - of.low) * x * x);
                masks[l][cell] = t < of.protected_slots ? 1 : 0;
            }
        }
        score_rows.push_back(scores[l].data());
        mask_rows.push_back(masks[l].data());
    }
    keel_allocator_input input = {KEEL_HEADER(keel_allocator_input)};
    input.layers = model_.layers;
    input.kv_heads = model_.kv_heads;
    input.budget = of.budget;
    input.protected_slots = of.protected_slots;
    input.stride = static_cast<int64_t>(stride);
    input.lengths = of.lengths.data();
    if ((needs_.needs & KEEL_ALLOCATOR_NEED_SCORES) != 0) {
        input.scores = score_rows.data();
        input.protected_masks = mask_rows.data();
    }
    OtherAge<keel_allocator_input> given(input, size);
    Guarded<int32_t> budgets(rows(), -1);
    HostServices::drop_error();
    const keel_status status = table_.allocate(state.state, given.get(), budgets.data());
    expect(budgets.intact(), of.name + ": wrote outside the array");
    if (!passed(report_, status, model_.name() + ": " + of.name)) return {};
    int64_t sum = 0, least = std::numeric_limits<int64_t>::max();
    bool equal = true, layers_equal = true;
    for (size_t i = 0; i < rows(); ++i) {
        sum += budgets[i];
        least = std::min<int64_t>(least, budgets[i]);
        equal = equal && (i % model_.kv_heads == 0 || budgets[i] == budgets[i - 1]);
        layers_equal = layers_equal && budgets[i] == budgets[i % model_.kv_heads];
    }
    const int64_t all = of.budget * static_cast<int64_t>(rows());
    expect(sum <= all, of.name + ": shares out " + std::to_string(sum) +
                           " slots, but the budget has " + std::to_string(all));
    expect(least >= of.protected_slots, of.name + ": a head gets " + std::to_string(least) +
                                            " slots, but " + std::to_string(of.protected_slots) +
                                            " are protected");
    expect(equal || (needs_.flags & KEEL_ALLOCATOR_RAGGED) != 0,
           of.name + ": heads of a layer get different budgets, but the flag RAGGED is not set");
    expect(layers_equal || (needs_.flags & (KEEL_ALLOCATOR_BY_LAYER | KEEL_ALLOCATOR_RAGGED)) != 0,
           of.name + ": layers get different budgets, but the flag BY_LAYER is not set");
    return {budgets.data(), budgets.data() + rows()};
}

void AllocatorChecker::check_case(const AllocatorCase &of) {
    const StatePtr one = make(), two = make();
    if (!one || !two) return;
    const uint32_t own = sizeof(keel_allocator_input);
    const auto budgets = ask(*one, of, std::numeric_limits<float>::quiet_NaN(), own);
    expect(ask(*two, of, 1e30f, own) == budgets,
           of.name + ": a second state gives other budgets, or slots after the end of a head "
                     "change the budgets");
    expect(ask(*one, of, 0.0f, own + 40) == budgets,
           of.name + ": a second call, with the input of a newer host, gives other budgets");
    if (needs_.needs == 0)
        expect(ask(*two, of, 0.0f, KEEL_PREFIX(keel_allocator_input, lengths)) == budgets,
               of.name + ": the input of an older host gives other budgets");
}

void AllocatorChecker::run() {
    const StatePtr first = make(needs_, &geometry_.c);
    if (!first) return;
    expect((needs_.needs & ~KEEL_ALLOCATOR_NEED_SCORES) == 0,
           "needs has bits that allocator.h does not know");
    expect((needs_.flags &
            ~(KEEL_ALLOCATOR_RAGGED | KEEL_ALLOCATOR_COMPARES | KEEL_ALLOCATOR_BY_LAYER)) == 0,
           "flags has bits that allocator.h does not know");
    expect((needs_.flags & KEEL_ALLOCATOR_COMPARES) == 0 ||
               (needs_.needs & KEEL_ALLOCATOR_NEED_SCORES) != 0,
           "the flag COMPARES needs KEEL_ALLOCATOR_NEED_SCORES, which is not set");
    for (const uint32_t size :
         {KEEL_PREFIX(keel_geometry, context), static_cast<uint32_t>(sizeof(keel_geometry) + 40)}) {
        OtherAge<keel_geometry> geometry(geometry_.c, size);
        keel_allocator_needs needs = {KEEL_HEADER(keel_allocator_needs)};
        make(needs, geometry.get());
    }
    OtherAge<keel_allocator_needs> newer(keel_allocator_needs{KEEL_HEADER(keel_allocator_needs)},
                                         sizeof(keel_allocator_needs) + 40);
    const StatePtr other = make(*newer.get(), &geometry_.c);
    expect(newer.intact() && (!other || newer.get()->needs == needs_.needs),
           "the needs are different for an older or newer host");
    for (const AllocatorCase &of : cases()) check_case(of);
    table_.destroy(nullptr);
}

} // namespace

Report check_allocator(const PluginLibrary &plugin, const ParamValues &params,
                       const std::vector<Model> &models, uint64_t seed) {
    Report report;
    size_t refused = 0;
    for (const Model &model : models) {
        const int64_t before = report.checks;
        AllocatorChecker(plugin, params, model, seed, report).run();
        if (report.checks - before <= 1) ++refused;
    }
    report.expect(refused < models.size(),
                  "every model was refused; name one that fits with --model");
    return report;
}

} // namespace keel::policy_check
