#pragma once

// The miniatures of tests/golden/moe_logits.json as pipelines.

#include "model/golden_check.hpp"
#include "run/session_batch.hpp"
#include "support/temp_folder.hpp"

namespace keel::test {

inline constexpr double expert_bound = 1e-4;

inline std::vector<Miniature> expert_miniatures() { return read_miniatures("moe_logits.json"); }

inline Miniature expert_miniature(const std::string &name) {
    for (Miniature &m : expert_miniatures())
        if (m.name == name) return std::move(m);
    throw std::runtime_error("no miniature " + name);
}

inline std::vector<GoldenCase> expert_cases() { return read_golden("moe_logits.json"); }

// A pipeline without rounding: weights and cache in f32, `compute: exact`.
inline std::unique_ptr<Pipeline> open_exact(const std::filesystem::path &model,
                                            const std::string &backend,
                                            std::vector<std::string> more = {},
                                            PipelineOptions options = {}) {
    std::vector<std::string> sets{"model.path=" + model.string(), "model.weights=f32",
                                  "kv.dtype=f32", "backend.plugin=" + backend};
    if (backend == "cpu") sets.insert(sets.end(), {"backend.params.compute=exact", "strict=true"});
    sets.insert(sets.end(), more.begin(), more.end());
    options.need_tokenizer = false;
    return std::make_unique<Pipeline>(pipeline::config_from_overrides(sets), options);
}

} // namespace keel::test
