#include "architecture_json.hpp"

#include "model/facts.hpp"

#include <algorithm>

namespace keel::cli {
namespace {

using Json = nlohmann::ordered_json;

const char *scaling_name(RopeScaling::Kind kind) {
    switch (kind) {
    case RopeScaling::Kind::none: return "none";
    case RopeScaling::Kind::linear: return "linear";
    case RopeScaling::Kind::llama3: return "llama3";
    case RopeScaling::Kind::factors: return "factors";
    case RopeScaling::Kind::yarn: return "yarn";
    case RopeScaling::Kind::longrope: break;
    }
    return "longrope";
}

Json scaling_json(const RopeScaling &s) {
    using Kind = RopeScaling::Kind;
    if (s.kind == Kind::none) return nullptr;
    Json json = {{"kind", scaling_name(s.kind)}};
    if (s.kind == Kind::factors || s.kind == Kind::longrope) {
        json["factors"] = s.factors;
    } else {
        json["factor"] = s.factor;
    }
    if (s.kind == Kind::llama3) {
        json["low_freq_factor"] = s.low_freq_factor;
        json["high_freq_factor"] = s.high_freq_factor;
    }
    if (s.original_context > 0) json["original_context"] = s.original_context;
    if (s.kind == Kind::yarn) {
        json["beta_fast"] = s.beta_fast;
        json["beta_slow"] = s.beta_slow;
        json["truncate"] = s.truncate;
    }
    if (s.kind == Kind::longrope) json["long_factors"] = s.long_factors;
    if (s.kind == Kind::yarn || s.kind == Kind::longrope)
        json["attention_factor"] = s.attention_factor;
    return json;
}

} // namespace

nlohmann::ordered_json architecture_json(const ModelConfig &m) {
    return {
        {"name", m.architecture->name},
        {"layers", m.layers},
        {"hidden_size", m.hidden_size},
        {"intermediate_size", m.intermediate_size},
        {"heads", m.heads},
        {"kv_heads", m.kv_heads},
        {"head_dim", m.head_dim},
        {"vocab_size", m.vocab_size},
        {"context", m.max_positions},
        {"rms_norm_eps", m.rms_norm_eps},
        {"rope_theta", m.rope_theta},
        {"local_rope_theta", m.local_rope_theta ? Json(*m.local_rope_theta) : Json(nullptr)},
        {"sliding_window", m.sliding_window ? Json(*m.sliding_window) : Json(nullptr)},
        {"sliding_layers", std::count(m.sliding_layers.begin(), m.sliding_layers.end(), true)},
        {"attention_scale", m.attention_scale()},
        {"attention_softcap", m.attention_softcap},
        {"logit_softcap", m.logit_softcap},
        {"beside_llama", architecture_facts(m)},
        {"experts", m.experts.count},
        {"experts_per_token", m.experts.used},
        {"rope_scaling", scaling_json(m.rope_scaling)},
        {"rope_elements", m.rot},
        {"rope_pairs", m.rope_interleaved ? "neighbours" : "halves"},
        {"layers_without_rope", std::count(m.no_rope_layers.begin(), m.no_rope_layers.end(), true)},
        {"tied_embeddings", m.tied_embeddings},
        {"bos_id", m.bos_id ? Json(*m.bos_id) : Json(nullptr)},
        {"eos_ids", m.eos_ids}};
}

} // namespace keel::cli
