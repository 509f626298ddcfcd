#include "model/config_rope.hpp"

#include "base/display.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace keel::model {
namespace {

constexpr int64_t max_context = INT32_MAX;

// The length of the first training, for kinds of scaling that need it. It is a key of the config or
// of `rope`.
int64_t original_context(const ConfigReader &in, const ConfigReader &rope) {
    constexpr const char *key = "original_max_position_embeddings";
    return (in.has(key) ? in : rope).integer(key, 1, max_context);
}

void read_yarn(const ConfigReader &in, const ConfigReader &rope, const ModelConfig &config,
               RopeScaling &s) {
    if (config.architecture->defaults.scales_queries) {
        rope.only({"type", "rope_type", "rope_theta", "partial_rotary_factor", "factor",
                   "original_max_position_embeddings", "max_position_embeddings",
                   "attention_factor", "mscale", "mscale_all_dim", "beta_fast", "beta_slow",
                   "truncate", "llama_4_scaling_beta"});
    } else {
        rope.only({"type", "rope_type", "rope_theta", "partial_rotary_factor", "factor",
                   "finetuned", "original_max_position_embeddings", "attention_factor", "mscale",
                   "mscale_all_dim", "beta_fast", "beta_slow", "truncate"});
    }
    s.kind = RopeScaling::Kind::yarn;
    s.factor = rope.number("factor", 1, 1e6);
    s.original_context = original_context(in, rope);
    s.beta_fast = rope.number("beta_fast", 1e-3, 1e6, 32);
    s.beta_slow = rope.number("beta_slow", 1e-3, 1e6, 1);
    if (s.beta_fast < s.beta_slow)
        rope.refuse("beta_fast", fmt::format("beta_slow ({}) or more", s.beta_slow));
    s.truncate = rope.boolean("truncate", true);
    const auto magnitude = [&](double m) { return 0.1 * m * std::log(s.factor) + 1; };
    const double scale = rope.number("mscale", 0, 1e3, 0),
                 all = rope.number("mscale_all_dim", 0, 1e3, 0);
    const double usual = scale > 0 && all > 0 ? magnitude(scale) / magnitude(all) : magnitude(1);
    s.attention_factor = rope.number("attention_factor", 1e-3, 1e3, usual);
}

std::vector<double> read_factors(const ConfigReader &rope, const char *key, int64_t rot) {
    std::vector<double> factors = rope.numbers(key, 1e-6, 1e6, static_cast<size_t>(rot / 2));
    if (std::ssize(factors) != rot / 2)
        rope.fail(key, fmt::format("expected {} numbers, half of the {} rotated elements of a "
                                   "head; found {}",
                                   rot / 2, rot, factors.size()));
    for (double &factor : factors) factor = static_cast<float>(factor); // as the authors' code
    return factors;
}

void read_longrope(const ConfigReader &in, const ConfigReader &rope, const ModelConfig &config,
                   RopeScaling &s) {
    rope.only({"type", "rope_type", "rope_theta", "partial_rotary_factor", "factor", "short_factor",
               "long_factor", "original_max_position_embeddings", "attention_factor"});
    s.kind = RopeScaling::Kind::longrope;
    s.original_context = original_context(in, rope);
    s.factors = read_factors(rope, "short_factor", config.rot);
    s.long_factors = read_factors(rope, "long_factor", config.rot);
    const double original = static_cast<double>(s.original_context);
    const double ratio = static_cast<double>(config.max_positions) / original;
    s.factor = rope.number("factor", 1, 1e6, std::max(1.0, ratio));
    const double usual =
        s.factor <= 1 ? 1 : std::sqrt(1 + std::log(s.factor) / std::max(std::log(original), 1e-9));
    s.attention_factor = rope.number("attention_factor", 1e-3, 1e3, usual);
}

// Reads both forms: rope_scaling {type | rope_type, ...}, or the newer rope_parameters, which also
// holds rope_theta.
RopeScaling read_scaling(const ConfigReader &in, const ConfigReader &rope,
                         const ModelConfig &config) {
    const char *key = rope.has("rope_type") ? "rope_type" : "type";
    const std::string type = rope.text(key, "default");
    RopeScaling scaling;
    if (type == "default") {
        rope.only({"type", "rope_type", "rope_theta", "partial_rotary_factor"});
    } else if (type == "linear") {
        rope.only({"type", "rope_type", "rope_theta", "partial_rotary_factor", "factor"});
        scaling.kind = RopeScaling::Kind::linear;
        scaling.factor = rope.number("factor", 1, 1e6);
    } else if (type == "llama3") {
        rope.only({"type", "rope_type", "rope_theta", "partial_rotary_factor", "factor",
                   "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
        scaling.kind = RopeScaling::Kind::llama3;
        scaling.factor = rope.number("factor", 1, 1e6);
        scaling.low_freq_factor = rope.number("low_freq_factor", 1e-6, 1e6);
        scaling.high_freq_factor = rope.number("high_freq_factor", 1e-6, 1e6);
        scaling.original_context = rope.integer("original_max_position_embeddings", 1, max_context);
        if (scaling.high_freq_factor <= scaling.low_freq_factor) {
            rope.refuse("high_freq_factor",
                        fmt::format("more than low_freq_factor ({})", scaling.low_freq_factor));
        }
    } else if (type == "yarn") {
        read_yarn(in, rope, config, scaling);
    } else if (type == "longrope" || type == "su") { // "su" is the older name
        read_longrope(in, rope, config, scaling);
    } else {
        rope.fail(key, fmt::format("'{}' scaling is not supported; supported: default, linear, "
                                   "llama3, yarn, longrope",
                                   printable(type)));
    }
    return scaling;
}

// Reads "partial_rotary_factor", which may be a key of the config or of the objects about RoPE.
void read_rotated_part(const ConfigReader &in, const std::vector<ConfigReader> &ropes,
                       ModelConfig &config) {
    constexpr const char *key = "partial_rotary_factor";
    const double usual = config.architecture->defaults.rotary_factor;
    double part = in.number(key, 0, 1, usual == 0 ? 1 : usual);
    bool is_given = in.has(key);
    for (const ConfigReader &rope : ropes) {
        if (!rope.has(key)) continue;
        const double other = rope.number(key, 0, 1);
        if (is_given && other != part)
            rope.refuse(key, fmt::format("the same value everywhere ({})", part));
        part = other;
        is_given = true;
    }
    const ConfigReader &place = in.has(key) || ropes.empty() ? in : ropes.front();
    if (usual == 0 && part != 1)
        place.fail(key, fmt::format("RoPE on only a part of each head is not supported for {}; "
                                    "expected 1",
                                    config.architecture->name));
    config.rot = static_cast<int64_t>(static_cast<double>(config.head_dim) * part);
    if (config.rot < 2 || config.rot % 2 != 0)
        place.fail(key, fmt::format("expected a share that gives an even number of elements of a "
                                    "head, found {} of {} elements",
                                    config.rot, config.head_dim));
}

constexpr double low_theta = 1;
constexpr double high_theta = 1e12;

// The layers with a window may have their own theta, without scaling. The key is
// "rope_local_base_freq". The newer form has an object for each kind of layer.
void read_local_rope(const ConfigReader &in, const std::optional<ConfigReader> &newer,
                     ModelConfig &config) {
    const double fallback = config.architecture->defaults.local_rope_theta;
    if (fallback == 0) return;
    config.local_rope_theta = in.number("rope_local_base_freq", low_theta, high_theta, fallback);
    if (!newer) return;
    config.local_rope_theta =
        newer->number("rope_theta", low_theta, high_theta, *config.local_rope_theta);
    if (read_scaling(in, *newer, config).kind != RopeScaling::Kind::none)
        newer->fail("rope_type", "RoPE scaling in the layers with an attention window is not "
                                 "supported; expected default");
}

// Checks theta, which is a key of `theta`. Qwen's configs with YaRN have the length of the first
// training in max_position_embeddings, so this function raises the context of the model.
void settle_yarn(const ConfigReader &theta, ModelConfig &config) {
    if (config.rope_theta <= 1)
        theta.refuse("rope_theta", "more than 1, because YaRN divides by its logarithm");
    const RopeScaling &s = config.rope_scaling;
    const double scaled = std::min(s.factor * static_cast<double>(s.original_context),
                                   static_cast<double>(max_context));
    config.max_positions = std::max(config.max_positions, static_cast<int64_t>(scaled));
}

} // namespace

void read_rope(const ConfigReader &in, ModelConfig &config) {
    auto newer = in.object("rope_parameters");
    std::optional<ConfigReader> local;
    if (newer && config.architecture->defaults.local_rope_theta != 0 &&
        newer->has("full_attention")) {
        newer->only({"full_attention", "sliding_attention"});
        local = newer->object("sliding_attention");
        newer = newer->object("full_attention");
    }
    const auto older = in.object("rope_scaling");
    std::vector<ConfigReader> ropes;
    for (const auto &part : {newer, older, local}) {
        if (part) ropes.push_back(*part);
    }
    read_rotated_part(in, ropes, config);
    read_local_rope(in, local, config);
    config.rope_theta =
        in.number("rope_theta", low_theta, high_theta, config.architecture->defaults.rope_theta);
    if (newer && newer->has("rope_theta")) {
        const double theta = newer->number("rope_theta", low_theta, high_theta);
        if (in.has("rope_theta") && theta != config.rope_theta) {
            newer->refuse("rope_theta",
                          fmt::format("the same as rope_theta at the top ({})", config.rope_theta));
        }
        config.rope_theta = theta;
    }
    if (older) config.rope_scaling = read_scaling(in, *older, config);
    if (newer) {
        const RopeScaling scaling = read_scaling(in, *newer, config);
        if (older && scaling != config.rope_scaling) {
            in.fail("rope_parameters", "contradicts rope_scaling; remove one of the two");
        }
        config.rope_scaling = scaling;
    }
    const ConfigReader *rope = newer ? &*newer : older ? &*older : nullptr;
    if (config.architecture->defaults.scales_queries && rope != nullptr) {
        const auto beta = [](const ConfigReader &from) {
            return from.number("llama_4_scaling_beta", 0, 1e3, 0.0);
        };
        if (older && newer && beta(*older) != beta(*newer))
            in.fail("rope_parameters", "contradicts rope_scaling; remove one of the two");
        config.query_scale_beta = beta(*rope);
        config.query_scale_context = config.rope_scaling.original_context;
    }
    if (config.rope_scaling.kind == RopeScaling::Kind::yarn)
        settle_yarn(newer && newer->has("rope_theta") ? *newer : in, config);
}

} // namespace keel::model
