// Converts GGUF's metadata about RoPE scaling to the object "rope_scaling" of a config.json.

#include "model/gguf_reader.hpp"

#include <cmath>
#include <fmt/format.h>

namespace keel::gguf {
namespace {

using nlohmann::json;

class ScalingMaker {
  public:
    ScalingMaker(const MetadataReader &in, std::map<std::string, std::string> &names)
        : in_(in), file_(in.file_), names_(names) {}

    json make(int64_t context) {
        const std::string type = in_.key("rope.scaling.type"),
                          factor = in_.key("rope.scaling.factor"),
                          older = in_.key("rope.scale_linear");
        names_["rope_scaling.rope_type"] = type;
        names_["rope_scaling.factor"] = file_.has(factor) ? factor : older;
        if (in_.tensor(long_factors_tensor) != nullptr) return longrope(context);
        if (file_.has(type) && file_.text(type) == "yarn") return yarn(factor);
        refuse_unless_one("rope.scaling.attn_factor");
        refuse_query_scale();
        if (file_.has(type) && file_.text(type) != "linear") {
            if (file_.text(type) == "none") return nullptr;
            return {{"rope_type", in_.value(type)}};
        }
        if (!file_.has(factor) && !file_.has(older)) return nullptr;
        const json by = in_.value(file_.has(factor) ? factor : older);
        // Some writers use 0 for "no scaling".
        if (by == json(0) || by == json(1)) return nullptr;
        return {{"rope_type", "linear"}, {"factor", by}};
    }

  private:
    // Sets a key of `object` to the value of a key of the file, if the file has the key.
    void take(json &object, const char *to, std::string_view from) {
        const std::string name = in_.key(from);
        names_[fmt::format("rope_scaling.{}", to)] = name;
        if (file_.has(name)) object[to] = in_.value(name);
    }

    // The queries' factor depends on YaRN's original context.
    void refuse_query_scale() const {
        if (in_.number_or("attention.temperature_scale", 0) == 0) return;
        const std::string name = in_.key("attention.temperature_scale");
        file_.fail(name, fmt::format("{} is supported only with YaRN; expected no such key", name));
    }

    void refuse_unless_one(std::string_view from) const {
        if (in_.number_or(from, 1) == 1) return;
        const std::string name = in_.key(from);
        file_.fail(name, fmt::format("{} is not supported with this kind of RoPE scaling; "
                                     "expected 1",
                                     in_.value(name).dump()));
    }

    static bool is_near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

    // Returns the factor of cos and sin with YaRN. Readers of GGUF compute it from the scaling
    // factor f. It is g(1) = 1 + 0.1 ln f, or g(1) / g(m) with the log multiplier m, times
    // attn_factor. llama.cpp's converter writes attention_factor of a config.json, which is the
    // whole factor, as yarn_attn_factor, and for OLMo 3 also as attn_factor.
    double yarn_attention(double f) {
        constexpr std::string_view partial = "rope.scaling.attn_factor",
                                   whole_key = "rope.scaling.yarn_attn_factor";
        const bool is_olmo = in_.architecture_->name == "olmo2";
        const auto magnitude = [&](double m) { return 0.1 * m * std::log(f) + 1; };
        const double multiplier = in_.number_or("rope.scaling.yarn_log_multiplier", 0);
        const double usual = magnitude(1) / (multiplier != 0 ? magnitude(multiplier) : 1);
        double attention = usual * in_.number_or(partial, 1);
        if (is_olmo) attention = in_.number_or(partial, in_.number_or(whole_key, usual));
        names_["rope_scaling.attention_factor"] =
            in_.key(is_olmo && !file_.has(in_.key(partial)) ? whole_key : partial);
        if (const double given = in_.number_or(whole_key, attention); !is_near(given, attention)) {
            file_.fail(in_.key(whole_key),
                       fmt::format("expected {:.8g}, the factor of cos and sin that the other keys "
                                   "of YaRN give; found {:.8g}",
                                   attention, given));
        }
        // The file has the factors with the precision of f32. If a factor fits the usual one or 1,
        // that one is used, so the GGUF file computes exactly what the folder does.
        for (const double exact : {usual, 1.0})
            if (is_near(attention, exact)) return exact;
        return attention;
    }

    json yarn(const std::string &factor) {
        json object = {{"rope_type", "yarn"}};
        take(object, "factor", "rope.scaling.factor");
        take(object, "original_max_position_embeddings", "rope.scaling.original_context_length");
        take(object, "beta_fast", "rope.scaling.yarn_beta_fast");
        take(object, "beta_slow", "rope.scaling.yarn_beta_slow");
        refuse_unless_one("rope.scaling.yarn_ext_factor");
        const double by = file_.has(factor) ? *file_.number(factor, 1, 1e6) : 1;
        if (find_architecture(in_.architecture_->architecture)->defaults.scales_queries)
            take(object, "llama_4_scaling_beta", "attention.temperature_scale");
        object["attention_factor"] = yarn_attention(by);
        return object;
    }

    // The attention factor is stored with the precision of f32. If it fits the usual one, the usual
    // one is used, so the GGUF file computes exactly what the folder does.
    json longrope(int64_t context) {
        json object = {{"rope_type", "longrope"}};
        take(object, "original_max_position_embeddings", "rope.scaling.original_context_length");
        for (const auto &[to, name] : {std::pair{"long_factor", long_factors_tensor},
                                       std::pair{"short_factor", short_factors_tensor}}) {
            json list = json::array();
            for (const float factor : in_.vector_of(name)) list.push_back(as_written(factor));
            object[to] = std::move(list);
        }
        const auto trained = static_cast<double>(context);
        const double original = in_.number_or("rope.scaling.original_context_length", trained),
                     attention = in_.number_or("rope.scaling.attn_factor", 1);
        const double usual = trained > original && original > 1
                                 ? std::sqrt(1 + std::log(trained / original) / std::log(original))
                                 : 1;
        if (!is_near(attention, usual)) object["attention_factor"] = attention;
        return object;
    }

    const MetadataReader &in_;
    const GgufFile &file_;
    std::map<std::string, std::string> &names_;
};

} // namespace

nlohmann::json read_rope_scaling(const MetadataReader &in, int64_t context,
                                 std::map<std::string, std::string> &names) {
    return ScalingMaker(in, names).make(context);
}

} // namespace keel::gguf
