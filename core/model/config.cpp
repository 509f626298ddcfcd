#include "model/config.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "model/config_reader.hpp"
#include "model/config_rope.hpp"
#include "platform/paths.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace keel {
namespace {

using model::ConfigReader;

constexpr int64_t max_hidden = 1 << 20;
constexpr int64_t max_intermediate = 1 << 24;
constexpr int64_t max_layers = 4096;
constexpr int64_t max_heads = 65536;
constexpr int64_t max_head_dim = 4096;
constexpr int64_t max_vocab = 1 << 24;
constexpr int64_t max_context = INT32_MAX;
constexpr uint64_t max_parameters = uint64_t{1} << 42; // 4.4 trillion: more parameters than any
                                                       // open model has, and far from an overflow
constexpr size_t max_end_tokens = 256;
constexpr JsonLimits config_limits{size_t{4} << 20, 32, 400'000};

[[noreturn]] void refuse_architecture(const ConfigReader &in, const char *key,
                                      const std::string &name) {
    const std::string_view reason = why_not_supported(name);
    in.fail(key, fmt::format("'{}' is not supported{}{}; supported: {}", printable(name),
                             reason.empty() ? "" : ", because ", reason, architecture_names()));
}

const Architecture *read_architecture(const ConfigReader &in) {
    const auto names = in.texts("architectures", 16);
    for (const std::string &name : names) {
        if (const Architecture *found = find_architecture(name)) return found;
    }
    if (!names.empty()) refuse_architecture(in, "architectures", names[0]);
    // Some folders give only "model_type".
    const std::string type = in.text("model_type", "");
    for (const Architecture *row : architectures()) {
        if (row->model_type == type) return row;
    }
    if (!type.empty()) refuse_architecture(in, "model_type", type);
    in.fail("architectures",
            fmt::format("expected one of: {}; found nothing", architecture_names()));
}

void read_sizes(const ConfigReader &in, ModelConfig &config) {
    const ConfigDefaults &defaults = config.architecture->defaults;
    config.hidden_size = in.integer("hidden_size", 1, max_hidden);
    config.intermediate_size = in.integer("intermediate_size", 1, max_intermediate);
    config.layers = in.integer("num_hidden_layers", 1, max_layers);
    config.heads = in.integer("num_attention_heads", 1, max_heads);
    config.kv_heads =
        in.integer("num_key_value_heads", 1, max_heads,
                   defaults.kv_heads == 0 || in.is_null("num_key_value_heads") ? config.heads
                                                                               : defaults.kv_heads);
    config.vocab_size = in.integer("vocab_size", 1, max_vocab);
    config.max_positions =
        in.integer("max_position_embeddings", 1, max_context, defaults.max_positions);
    if (config.heads % config.kv_heads != 0) {
        in.refuse("num_key_value_heads",
                  fmt::format("a divisor of num_attention_heads ({})", config.heads));
    }
    if (in.has("head_dim") || defaults.head_dim != 0) {
        config.head_dim = in.integer("head_dim", 2, max_head_dim, defaults.head_dim);
    } else {
        if (config.hidden_size % config.heads != 0) {
            in.fail("head_dim", fmt::format("expected a value, because hidden_size ({}) is not a "
                                            "multiple of num_attention_heads ({})",
                                            config.hidden_size, config.heads));
        }
        config.head_dim = config.hidden_size / config.heads;
    }
    if (config.head_dim % 2 != 0 || config.head_dim > max_head_dim) {
        in.fail("head_dim", fmt::format("expected an even number from 2 to {}, found {}",
                                        max_head_dim, config.head_dim));
    }
    if (config.q_size() > max_hidden * 4) {
        in.fail(
            "num_attention_heads",
            fmt::format("{} heads of {} elements each have more than {} query elements in total",
                        config.heads, config.head_dim, max_hidden * 4));
    }
}

void check_parameter_count(const ConfigReader &in, const ModelConfig &config) {
    if (config.parameter_count() <= max_parameters) return;
    in.fail("num_hidden_layers", fmt::format("the sizes give {} parameters, expected at most {}",
                                             config.parameter_count(), max_parameters));
}

void read_tokens(const ConfigReader &in, ModelConfig &config) {
    const auto bos = in.integers("bos_token_id", 0, config.vocab_size - 1, 1);
    if (!bos.empty()) config.bos_id = bos[0];
    config.eos_ids = in.integers("eos_token_id", 0, config.vocab_size - 1, max_end_tokens);
    std::sort(config.eos_ids.begin(), config.eos_ids.end());
    config.eos_ids.erase(std::unique(config.eos_ids.begin(), config.eos_ids.end()),
                         config.eos_ids.end());
}

// Refuses a config with experts if its architecture has none. Without this check the model would
// run and generate nonsense.
void check_dense(const ConfigReader &in, const Architecture &architecture) {
    if (!architecture.names.router.empty()) return;
    for (const char *key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
        if (in.integer(key, 0, max_heads, 0) > 1)
            in.fail(key, fmt::format("a mixture of experts is not supported for {}; expected a "
                                     "dense model",
                                     architecture.name));
    }
}

Activation read_activation(const ConfigReader &in, const ConfigDefaults &defaults) {
    const std::string name = in.text(defaults.activation_key, defaults.activation);
    if (name == "silu" || name == "swish") return Activation::silu;
    if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::gelu_tanh;
    if (name == "gelu") return Activation::gelu;
    in.fail(defaults.activation_key, fmt::format("'{}' is not supported; supported: silu, gelu, "
                                                 "gelu_pytorch_tanh",
                                                 printable(name)));
}

void check_not_quantized(const ConfigReader &in) {
    const auto quantization = in.object("quantization_config");
    if (!quantization) return;
    in.fail("quantization_config",
            fmt::format("weights quantized by '{}' are not supported; give the original model",
                        printable(quantization->text("quant_method", "an unknown method"))));
}

} // namespace

double ModelConfig::query_scale(int64_t position) const {
    if (query_scale_beta == 0) return 1;
    const auto contexts = static_cast<double>(position / query_scale_context);
    return 1 + query_scale_beta * std::log(1 + contexts);
}

double ModelConfig::attention_scale() const {
    return attention_multiplier.value_or(
        1 / std::sqrt(query_scalar.value_or(static_cast<double>(head_dim))));
}

uint64_t ModelConfig::parameters(int64_t counted_experts) const {
    // For values in the ranges above, each product is below 2^46 and the sum below 2^60. With
    // experts, the number may be larger.
    const int64_t attention = hidden_size * (2 * q_size() + 2 * kv_size());
    const int64_t attention_biases =
        (qkv_bias ? q_size() + 2 * kv_size() : 0) + (attention_out_bias ? hidden_size : 0);
    const int64_t mlp = 3 * hidden_size * (experts.count == 0 ? intermediate_size : 0);
    const int64_t mlp_biases = mlp_bias ? 2 * intermediate_size + hidden_size : 0;
    const int64_t blocks = (pre_norms ? (parallel_blocks ? 1 : 2) : 0) + (post_norms ? 2 : 0);
    const int64_t norms = blocks * hidden_size + (qk_norm_joint ? q_size() + kv_size()
                                                  : qk_norm     ? 2 * head_dim
                                                                : 0);
    const int64_t layer = attention + attention_biases + mlp + mlp_biases + norms;
    const int64_t embeddings = vocab_size * hidden_size * (tied_embeddings ? 1 : 2);
    const auto dense = static_cast<uint64_t>(layers * layer + embeddings + hidden_size);
    if (experts.count == 0) return dense;
    const int64_t shared = experts.shared_size == 0 ? 0 : 3 * experts.shared_size + 1;
    const __int128 each =
        static_cast<__int128>(hidden_size) *
        (3 * static_cast<__int128>(counted_experts) * experts.size + experts.count + shared);
    const __int128 all = each * layers + static_cast<__int128>(dense);
    return all > INT64_MAX ? uint64_t{INT64_MAX} : static_cast<uint64_t>(all);
}

ModelConfig parse_model_config(std::string_view text, std::string_view name) {
    return parse_model_config(JsonDocument(text, std::string(name), config_limits));
}

ModelConfig parse_model_config(const JsonDocument &document) {
    const ConfigReader in(document.object());
    ModelConfig config;
    config.architecture = read_architecture(in);
    const ConfigDefaults &defaults = config.architecture->defaults;
    check_not_quantized(in);
    check_dense(in, *config.architecture);
    config.activation = read_activation(in, defaults);
    config.tied_embeddings = in.boolean("tie_word_embeddings", defaults.tied_embeddings);
    read_sizes(in, config);
    config.rms_norm_eps = in.number(defaults.norm_eps_key, 1e-12, 1, defaults.norm_eps);
    model::read_rope(in, config);
    config.architecture->read(in, config);
    check_parameter_count(in, config);
    read_tokens(in, config);
    config.stored_dtype = printable(in.text(in.has("dtype") ? "dtype" : "torch_dtype", ""), 40);
    return config;
}

void add_generation_config(ModelConfig &config, std::string_view text, std::string_view name) {
    const JsonDocument document(text, std::string(name), config_limits);
    const auto more = ConfigReader(document.object())
                          .integers("eos_token_id", 0, config.vocab_size - 1, max_end_tokens);
    std::vector<int64_t> &ids = config.eos_ids;
    ids.insert(ids.end(), more.begin(), more.end());
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
}

ModelConfig load_model_config(const std::filesystem::path &folder) {
    const auto file = folder / "config.json";
    ModelConfig config =
        parse_model_config(read_text_file(file, config_limits.bytes), file.string());
    const auto generation = folder / "generation_config.json";
    if (std::filesystem::exists(generation)) {
        add_generation_config(config, read_text_file(generation, config_limits.bytes),
                              generation.string());
    }
    return config;
}

} // namespace keel
