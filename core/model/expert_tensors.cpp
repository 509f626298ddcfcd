#include "model/expert_tensors.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <optional>

namespace keel {
namespace {

constexpr std::string_view layers_prefix = "model.layers.", weight_suffix = ".weight";

// transformers 5 uses these names for all architectures if it saves its own form.
constexpr std::string_view plain_down = "mlp.experts.down_proj", plain_router = "mlp.gate";

// The matrices that a tensor holds for each expert, one after the other.
struct Stack {
    std::vector<std::string_view> matrices;
    int64_t rows, cols; // of each matrix
};

std::optional<Stack> stack_of(std::string_view part, const ModelConfig &c) {
    const LayerNames &n = c.architecture->names;
    const int64_t size = c.experts.size, hidden = c.hidden_size;
    if (part == stacked_gate_up) return Stack{{n.expert_gate, n.expert_up}, size, hidden};
    if (part == plain_down || part == stacked_name(n, n.expert_down))
        return Stack{{n.expert_down}, hidden, size};
    if (part == stacked_name(n, n.expert_gate)) return Stack{{n.expert_gate}, size, hidden};
    if (part == stacked_name(n, n.expert_up)) return Stack{{n.expert_up}, size, hidden};
    return std::nullopt;
}

// Splits "model.layers.3.PART.weight" into "model.layers.3." and PART.
std::pair<std::string_view, std::string_view> layer_and_part(std::string_view name) {
    if (!name.starts_with(layers_prefix)) return {};
    const size_t dot = name.find('.', layers_prefix.size());
    if (dot == std::string_view::npos) return {};
    std::string_view part = name.substr(dot + 1);
    if (part.ends_with(weight_suffix)) part.remove_suffix(weight_suffix.size());
    return {name.substr(0, dot + 1), part};
}

void add_experts(const TensorInfo &whole, std::string_view layer, const Stack &stack,
                 const ModelConfig &c, std::vector<TensorInfo> &out) {
    const auto matrices = static_cast<uint64_t>(c.experts.count) * stack.matrices.size();
    const std::string stored = whole.stored_name.empty() ? whole.name : whole.stored_name;
    TensorInfo one = whole;
    one.shape = {stack.rows, stack.cols};
    one.bytes = whole.bytes / matrices;
    for (uint64_t i = 0; i < matrices; ++i) {
        const uint64_t expert = i / stack.matrices.size();
        one.name = fmt::format("{}{}.{}.{}.weight", layer, c.architecture->names.experts, expert,
                               stack.matrices[i % stack.matrices.size()]);
        one.stored_name = fmt::format("{}, expert {}", stored, expert);
        one.offset = whole.offset + i * one.bytes;
        out.push_back(one);
    }
}

} // namespace

std::string stacked_name(const LayerNames &names, std::string_view matrix) {
    return fmt::format("{}.{}", names.experts, matrix);
}

std::vector<TensorInfo> split_experts(std::vector<TensorInfo> tensors, const ModelConfig &config,
                                      std::string_view config_name,
                                      const std::function<std::string(const TensorInfo &)> &place) {
    if (config.experts.count == 0) return tensors;
    std::vector<TensorInfo> out;
    for (TensorInfo &tensor : tensors) {
        const auto [layer, part] = layer_and_part(tensor.name);
        if (part == plain_router) {
            tensor.stored_name = tensor.stored_name.empty() ? tensor.name : tensor.stored_name;
            tensor.name =
                fmt::format("{}{}{}", layer, config.architecture->names.router, weight_suffix);
        }
        const std::optional<Stack> stack = stack_of(part, config);
        if (!stack) {
            out.push_back(std::move(tensor));
            continue;
        }
        const std::vector<int64_t> shape = {
            config.experts.count, static_cast<int64_t>(stack->matrices.size()) * stack->rows,
            stack->cols};
        if (tensor.shape != shape) {
            throw_error(ErrorKind::input, "{}: tensor '{}': {} requires shape {}, found {} of {}",
                        place(tensor),
                        printable(tensor.stored_name.empty() ? tensor.name : tensor.stored_name),
                        config_name, shape_text(shape), shape_text(tensor.shape),
                        tensor.dtype_name);
        }
        add_experts(tensor, layer, *stack, config, out);
    }
    return out;
}

} // namespace keel
