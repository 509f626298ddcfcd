// PyramidKV (arXiv 2406.02069): the first layers get more slots and the last layers get fewer. The
// total is the same as with equal budgets.
#include <keel/sdk_policy.hpp>

namespace {

using namespace keel::sdk;

constexpr const char *modes[] = {"none", "kvpress", nullptr};

class Pyramid {
  public:
    static constexpr PluginInfo info = {
        "pyramid", "0.1.0", "Keel", "MIT",
        "Gives the first layers more than the last; the heads of a layer get the same."};
    static constexpr keel_param_spec params[] = {
        KEEL_FLOAT_PARAM("beta", "20", 1, 1e6,
                         "how steep: the last layer's share is the average divided by beta; 1: "
                         "every layer the same"),
        KEEL_CHOICE_PARAM("compat", "none", modes,
                          "kvpress: the budgets of kvpress 0.5.5, with the slots that always stay "
                          "inside the pyramid, its rounding, and equal budgets where it gives "
                          "them")};

    Pyramid(const Setup &setup, keel_allocator_needs &needs)
        : beta_(setup.params.number("beta")), like_kvpress_(setup.params.is("compat", "kvpress")) {
        needs.flags = KEEL_ALLOCATOR_BY_LAYER;
    }

    void allocate(const keel_allocator_input &in, int32_t *budgets) {
        const size_t layers = in.layers;
        const std::vector<int64_t> shares = like_kvpress_ ? kvpress_shares(in) : shares_of(in);
        for (size_t l = 0; l < layers; ++l)
            std::fill_n(budgets + l * in.kv_heads, in.kv_heads, static_cast<int32_t>(shares[l]));
    }

  private:
    static int64_t longest_of(const keel_allocator_input &in) {
        return *std::max_element(in.lengths,
                                 in.lengths + static_cast<size_t>(in.layers) * in.kv_heads);
    }

    // Returns the budgets of kvpress's PyramidKVPress. The fixed slots stand for its observation
    // window. If there are no fixed slots, each layer gets at least protected_slots.
    std::vector<int64_t> kvpress_shares(const keel_allocator_input &in) const {
        const size_t layers = in.layers;
        const auto average = static_cast<double>(in.budget),
                   window = static_cast<double>(in.fixed_slots > 0 ? in.fixed_slots
                                                                   : in.protected_slots),
                   longest = static_cast<double>(longest_of(in));
        double least = average / beta_, largest = 2 * average - least;
        if (largest >= longest - window) {
            largest = longest - window;
            least = 2 * average - largest;
        }
        std::vector<int64_t> shares(layers, in.budget);
        if (layers < 2 || longest < largest || largest < least || least < window) return shares;
        const double step = (largest - least) / static_cast<double>(layers - 1);
        int64_t left = in.budget * static_cast<int64_t>(layers);
        for (size_t l = 0; l < layers; ++l) {
            // rounds to the nearest number, ties to even, as Python's round() does
            shares[l] = std::lrint(largest - static_cast<double>(l) * step);
            left -= shares[l];
        }
        // Because of rounding errors, the sum can be one slot too large.
        if (left < 0) shares[0] += left;
        return shares;
    }

    // Returns the number of slots per head for each layer. The sum over the layers is budget *
    // layers.
    std::vector<int64_t> shares_of(const keel_allocator_input &in) const {
        const size_t layers = in.layers;
        const int64_t fixed = in.fixed_slots, longest = longest_of(in);
        const auto average = static_cast<double>(in.budget - fixed),
                   most = static_cast<double>(longest - fixed);
        std::vector<int64_t> same(layers, in.budget);
        if (layers < 2 || average <= 0 || most <= average) return same;
        double least = average / beta_, largest = 2 * average - least;
        // No head has more than `most` slots. If the largest number is above `most`, the
        // differences between layers are reduced. The sum does not change.
        if (largest > most) {
            largest = most;
            least = 2 * average - most;
        }
        std::vector<double> weights(layers);
        for (size_t l = 0; l < layers; ++l)
            weights[l] = largest - static_cast<double>(l) * (largest - least) /
                                       static_cast<double>(layers - 1);
        // Each layer gets at least the protected slots. A policy can need one slot more than the
        // slots that it always keeps.
        const int64_t floor = std::max<int64_t>(0, in.protected_slots - fixed);
        std::vector<int64_t> shares = share_out(weights, std::vector<int64_t>(layers, floor),
                                                std::vector<int64_t>(layers, INT32_MAX),
                                                (in.budget - fixed) * static_cast<int64_t>(layers));
        for (int64_t &share : shares) share += fixed;
        return shares;
    }

    double beta_;
    bool like_kvpress_;
};

} // namespace

KEEL_ALLOCATOR_PLUGIN(Pyramid)
