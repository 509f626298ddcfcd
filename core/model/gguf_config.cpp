#include "base/display.hpp"
#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "model/gguf_reader.hpp"
#include "model/rope_frequencies.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

namespace keel::gguf {
namespace {

using nlohmann::json;

// Makes the object of a config.json from metadata. Remembers the GGUF key of each key of the
// config.
class ConfigMaker : MetadataReader {
  public:
    explicit ConfigMaker(std::span<const GgufFile> files) : MetadataReader(files) {}

    ModelConfig make() {
        config_["architectures"] = {architecture_name()};
        add_sizes();
        add_rope();
        add_particular();
        add_tokens();
        ModelConfig config = parse();
        if (architecture_->factor_norms) config.norm_offset = 0;
        check_window_pattern(config);
        add_rope_factors(config);
        return config;
    }

  private:
    // GGUF files of Mixtral, Mistral and Llama have the same architecture name. Experts make a file
    // a Mixtral. Without experts, a window makes the file a Mistral. OLMo 2 and OLMo 3 also have
    // the same name. A window makes a file an OLMo 3. Files of Ministral 3 and of Mistral Small
    // 3.1 and 3.2 have the same name too. Only Ministral 3 has RoPE scaling.
    std::string architecture_name() const {
        const std::string window = key("attention.sliding_window");
        const bool has_window = file_.has(window) && value(window) != json(0);
        if (is_llama() && file_.integer(key("expert_count")).value_or(0) > 0)
            return "MixtralForCausalLM";
        if (has_window && is_llama()) return "MistralForCausalLM";
        if (has_window && architecture_->name == "olmo2") return "Olmo3ForCausalLM";
        const std::string scaling = key("rope.scaling.type");
        const bool is_scaled = file_.has(scaling) && file_.text(scaling) != "none";
        if (architecture_->name == "mistral3" && !is_scaled &&
            !file_.has(key("attention.temperature_scale")))
            return "MistralForCausalLM";
        return std::string(architecture_->architecture);
    }
    bool is_llama() const { return architecture_->name == "llama"; }
    const ConfigDefaults &defaults() const {
        return find_architecture(architecture_->architecture)->defaults;
    }

    // Sets config[to] to the value of the file's key `from`. Returns false if the file lacks the
    // key.
    bool take(const char *to, std::string_view from) {
        const std::string name = key(from);
        names_[to] = name;
        if (!file_.has(name)) return false;
        config_[to] = value(name);
        return true;
    }

    void require(const char *to, std::string_view from) {
        if (!take(to, from))
            throw_error(ErrorKind::input, "{}: metadata key '{}' is missing", file_.name(),
                        key(from));
    }

    void add_sizes() {
        take("hidden_size", "embedding_length");
        take("intermediate_size", "feed_forward_length");
        take("num_hidden_layers", "block_count");
        take("num_attention_heads", "attention.head_count");
        if (!take("num_key_value_heads", "attention.head_count_kv") &&
            config_.contains("num_attention_heads"))
            config_["num_key_value_heads"] = config_["num_attention_heads"];
        require("max_position_embeddings", "context_length");
        const std::string eps = defaults().norm_eps_key;
        require(eps.c_str(), eps == "rms_norm_eps" ? "attention.layer_norm_rms_epsilon"
                                                   : "attention.layer_norm_epsilon");
        add_experts();
        add_head_size();
        take("vocab_size", "vocab_size");
        if (const auto rows = rows_of("token_embd.weight")) {
            config_["vocab_size"] = *rows;
        } else if (const auto tokens = file_.array_size("tokenizer.ggml.tokens")) {
            config_["vocab_size"] = *tokens;
        }
        config_["tie_word_embeddings"] = !rows_of("output.weight");
    }

    // The keys of a mixture of experts. The choice of experts that a reader makes depends on the
    // name of the architecture. Files in which a key asks for another choice are refused.
    void add_experts() {
        if (!take("num_experts", "expert_count") || number("num_experts") == 0) {
            config_.erase("num_experts");
            return;
        }
        require("num_experts_per_tok", "expert_used_count");
        const int64_t used = number("num_experts_per_tok");
        const bool is_qwen = architecture_->name.starts_with("qwen");
        const char *size = is_qwen ? "moe_intermediate_size" : "intermediate_size";
        if (!take(size, "expert_feed_forward_length")) {
            names_[size] = key("feed_forward_length");
            // Files of the first Qwen2-MoE do not have the key.
            if (is_qwen && used > 0) config_[size] = number("intermediate_size") / used;
        }
        if (architecture_->name == "qwen2moe" &&
            !take("shared_expert_intermediate_size", "expert_shared_feed_forward_length"))
            config_["shared_expert_intermediate_size"] = number("intermediate_size");
        config_["norm_topk_prob"] = architecture_->name == "qwen3moe";
        refuse_other("expert_weights_norm", {architecture_->name == "qwen3moe" || is_llama()});
        refuse_other("expert_weights_scale", {0, 1});
        refuse_other("expert_gating_func", {0, 1}); // 1: softmax
        refuse_other("expert_group_count", {0, 1});
        refuse_other("leading_dense_block_count", {0});
    }

    void refuse_other(std::string_view rest, std::initializer_list<json> expected) const {
        const std::string name = key(rest);
        if (!file_.has(name)) return;
        const json found = value(name);
        if (std::find(expected.begin(), expected.end(), found) != expected.end()) return;
        file_.fail(name,
                   fmt::format("expected {}, found {}; Keel does not choose experts in this "
                               "way for {}",
                               (expected.end() - 1)->dump(), found.dump(), architecture_->name));
    }

    void add_head_size() {
        if (!take("head_dim", "attention.key_length")) {
            const auto hidden = number("hidden_size"), heads = number("num_attention_heads");
            if (hidden > 0 && heads > 0 && hidden % heads == 0)
                config_["head_dim"] = hidden / heads;
        }
        const int64_t head = number("head_dim");
        const std::string value_length = key("attention.value_length"),
                          rotated = key("rope.dimension_count");
        if (file_.has(value_length) && value(value_length) != json(head)) {
            file_.fail(value_length, fmt::format("heads with keys of {} and values of {} elements "
                                                 "are not supported; expected equal sizes",
                                                 head, value(value_length).dump()));
        }
        const json rot = file_.has(rotated) ? value(rotated) : json(head);
        if (defaults().rotary_factor == 0 && rot != json(head)) {
            file_.fail(rotated, fmt::format("RoPE on {} of the {} elements of each head is not "
                                            "supported; expected all elements",
                                            rot.dump(), head));
        }
        if (defaults().rotary_factor == 0 || head <= 0) return;
        if (!rot.is_number_integer() || rot.get<int64_t>() < 2 || rot.get<int64_t>() > head)
            file_.fail(rotated,
                       fmt::format("expected a number from 2 to {}, found {}", head, rot.dump()));
        // The parser rounds the product of share and head size down.
        names_["partial_rotary_factor"] = rotated;
        config_["partial_rotary_factor"] =
            rot == json(head) ? 1.0 : (rot.get<double>() + 0.5) / static_cast<double>(head);
    }

    // The number of a key. 0 if it is not an integer; parse() will then refuse the key.
    int64_t number(const char *name) const {
        const auto found = config_.find(name);
        return found != config_.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
    }

    void add_rope() {
        const std::string sections = key("rope.dimension_sections");
        if (file_.has(sections)) {
            file_.fail(sections, "RoPE with several positions for each token (M-RoPE) is not "
                                 "supported; give a model that was made for text only");
        }
        // The config of a Cohere model must have the key.
        if (!take("rope_theta", "rope.freq_base") &&
            !architecture_->architecture.starts_with("Cohere"))
            config_["rope_theta"] = architecture_->name == "gemma3" ? 1e6 : 1e4;
        json scaling = read_rope_scaling(*this, number("max_position_embeddings"), names_);
        if (!scaling.is_null()) config_["rope_scaling"] = std::move(scaling);
    }

    void add_scales() {
        if (architecture_->name == "granite") {
            require("attention_multiplier", "attention.scale");
            take("embedding_multiplier", "embedding_scale");
            take("residual_multiplier", "residual_scale");
            take("logits_scaling", "logit_scale");
        }
        if (architecture_->architecture.starts_with("Cohere"))
            require("logit_scale", "logit_scale");
    }

    void add_particular() {
        add_scales();
        config_["attention_bias"] = tensor("blk.0.attn_q.bias") != nullptr;
        config_["mlp_bias"] = tensor("blk.0.ffn_gate.bias") != nullptr;
        take("sliding_window", "attention.sliding_window");
        // Writers use 0 for "no window" in architectures that may have none (Phi 4).
        const bool may_lack_window =
            architecture_->name == "phi3" || architecture_->name == "llama" ||
            architecture_->name == "olmo2" || architecture_->name == "mistral3";
        if (may_lack_window && config_.value("sliding_window", json(1)) == json(0))
            config_["sliding_window"] = nullptr;
        // MistralForCausalLM has a window if its config lacks the key.
        if (architecture_->name == "mistral3" && !config_.contains("sliding_window"))
            config_["sliding_window"] = nullptr;
        take("attn_logit_softcapping", "attn_logit_softcapping");
        take("final_logit_softcapping", "final_logit_softcapping");
        if (!architecture_->factor_norms) return;
        // GGUF has no key for this value. It is the head size in all Gemmas except the largest
        // Gemma 2 and the largest Gemma 3, in which it is hidden / heads.
        const int64_t layers = number("num_hidden_layers"), heads = number("num_attention_heads");
        const bool largest = (architecture_->name == "gemma2" && layers == 46) ||
                             (architecture_->name == "gemma3" && layers == 62);
        config_["query_pre_attn_scalar"] =
            largest && heads > 0 ? number("hidden_size") / heads : number("head_dim");
        config_["tie_word_embeddings"] = true;
    }

    void add_tokens() {
        const int64_t vocabulary = number("vocab_size");
        const auto id = [&](const char *name) -> std::optional<int64_t> {
            const auto found = file_.integer(name);
            if (!found || *found < 0 || *found == UINT32_MAX)
                return std::nullopt; // some writers use this value for "none"
            if (*found >= vocabulary)
                file_.fail(name,
                           fmt::format("expected a token below {}, found {}", vocabulary, *found));
            return found;
        };
        if (const auto bos = id("tokenizer.ggml.bos_token_id")) config_["bos_token_id"] = *bos;
        json ends = json::array();
        for (const char *name : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                 "tokenizer.ggml.eom_token_id"}) {
            if (const auto end = id(name)) ends.push_back(*end);
        }
        config_["eos_token_id"] = std::move(ends);
    }

    // The parser's messages name keys of config.json. This function replaces them by the keys of
    // the GGUF file.
    ModelConfig parse() const {
        try {
            return parse_model_config(JsonDocument::of_tree(config_, file_.name()));
        } catch (const JsonError &e) {
            const auto name = names_.find(e.path());
            if (name == names_.end()) throw;
            throw_error(ErrorKind::input, "{}: metadata key '{}': {}", e.place(), name->second,
                        e.text());
        }
    }

    // The key lists the layers with a window: a boolean for each layer, or a number n. With n,
    // every n-th layer has no window.
    void check_window_pattern(const ModelConfig &config) const {
        const std::string name = key("attention.sliding_window_pattern");
        const GgufEntry *entry = file_.find(name);
        if (entry == nullptr || !config.sliding_window) return;
        const auto layers = static_cast<size_t>(config.layers);
        std::vector<bool> slides;
        if (entry->is_array()) {
            slides = *file_.booleans(name, layers);
            if (slides.size() != layers)
                file_.fail(name, fmt::format("expected a boolean for each of {} layers, found {}",
                                             layers, file_.describe(*entry)));
        } else {
            const auto n = static_cast<size_t>(*file_.integer(name, 1, INT32_MAX));
            for (size_t i = 0; i < layers; ++i) slides.push_back((i + 1) % n != 0);
        }
        for (size_t i = 0; i < layers; ++i) {
            const bool expected = config.window(i) > 0;
            if (slides[i] == expected) continue;
            file_.fail(name,
                       fmt::format("expected layer {} {} a window, as in every {}; another "
                                   "choice of layers is not supported in GGUF files; use the "
                                   "model's folder",
                                   i, expected ? "with" : "without", config.architecture->name));
        }
    }

    void add_rope_factors(ModelConfig &config) const {
        const auto [file, factors] = find(rope_factors_tensor);
        if (factors == nullptr) return;
        const int64_t half = config.rot / 2;
        if (factors->type->id != ggml::f32 || factors->shape != std::vector<int64_t>{half}) {
            throw_error(ErrorKind::input, "{}: tensor '{}': expected {} of F32, found {} of {}",
                        file->name(), rope_factors_tensor, shape_text(std::vector<int64_t>{half}),
                        shape_text(factors->shape), factors->type->name);
        }
        const std::vector<float> values = vector_of(rope_factors_tensor);
        for (const float value : values) {
            if (!(value >= 1e-6F && value <= 1e6F)) {
                throw_error(ErrorKind::input,
                            "{}: tensor '{}': expected factors from 1e-6 to 1e6, found {}",
                            file->name(), rope_factors_tensor, value);
            }
        }
        if (config.rope_scaling.kind != RopeScaling::Kind::none) {
            throw_error(ErrorKind::input, "{}: tensor '{}' contradicts metadata key '{}'",
                        file_.name(), rope_factors_tensor, key("rope.scaling.type"));
        }
        config.rope_scaling = scaling_of(config, values);
    }

    // All Llamas from 3.1 on have the same scaling. The factors in a GGUF file are rounded. If they
    // fit this scaling, the exact scaling is used, so the GGUF file computes exactly what the
    // folder does.
    static RopeScaling scaling_of(const ModelConfig &config, const std::vector<float> &values) {
        RopeScaling known;
        known.kind = RopeScaling::Kind::llama3;
        known.factor = values.back();
        known.low_freq_factor = 1;
        known.high_freq_factor = 4;
        known.original_context = 8192;
        const auto expected = llama3_factors(config.rope_theta, config.rot, known);
        const bool same =
            std::equal(values.begin(), values.end(), expected.begin(),
                       [](float a, float b) { return std::abs(a - b) <= 1e-6F * std::abs(b); });
        if (same && known.factor > 1) return known;
        RopeScaling scaling;
        scaling.kind = RopeScaling::Kind::factors;
        scaling.factors.assign(values.begin(), values.end());
        return scaling;
    }

    json config_ = json::object();
    std::map<std::string, std::string> names_; // key of a config.json -> key of the GGUF file
};

} // namespace

std::vector<float> llama3_factors(double theta, int64_t rot, const RopeScaling &scaling) {
    const auto plain = rope_frequencies(theta, rot, {}),
               scaled = rope_frequencies(theta, rot, scaling);
    std::vector<float> factors;
    for (size_t i = 0; i < plain.size(); ++i)
        factors.push_back(static_cast<float>(plain[i] / scaled[i]));
    return factors;
}

ModelConfig read_config(std::span<const GgufFile> files) { return ConfigMaker(files).make(); }

} // namespace keel::gguf
