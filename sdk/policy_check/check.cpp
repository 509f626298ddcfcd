#include "policy_check/check.hpp"

namespace keel::policy_check {

std::string Model::name() const {
    return std::to_string(layers) + " layers, " + std::to_string(heads) + " heads, " +
           std::to_string(kv_heads) + " KV heads of " + std::to_string(head_dim) +
           (has_rope ? "" : ", no common RoPE");
}

std::vector<Model> usual_models() {
    return {{3, 8, 4, 16}, {3, 4, 4, 8}, {1, 6, 2, 12}, {2, 2, 1, 64}, {3, 4, 2, 8, false}};
}

double uniform(uint64_t seed, uint64_t index) {
    uint64_t x = seed * 0x9e3779b97f4a7c15u + index * 0xd1342543de82ef95u + 1;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

ModelGeometry::ModelGeometry(const Model &model) {
    c.layers = model.layers;
    c.heads = model.heads;
    c.kv_heads = model.kv_heads;
    c.head_dim = model.head_dim;
    c.context = 4096;
    c.attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(model.head_dim)));
    c.rope_mode = KEEL_ROPE_HALF_SPLIT;
    if (!model.has_rope) return;
    for (uint32_t i = 0; i < model.head_dim / 2; ++i)
        frequencies_.push_back(std::pow(10000.0, -2.0 * i / model.head_dim));
    c.rot = model.head_dim / 2 * 2;
    c.rope_frequencies = frequencies_.data();
}

bool passed(Report &report, keel_status status, const std::string &what) {
    const auto error = HostServices::take_error();
    if (status == KEEL_OK) return true;
    ++report.refused;
    report.expect(error && !error->message.empty(),
                  what + ": refused with " + status_name(status) + " and no message");
    return false;
}

} // namespace keel::policy_check
