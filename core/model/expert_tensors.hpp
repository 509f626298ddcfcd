#pragma once

// Used only in core/model: tensors that hold the matrices of all experts.

#include "model/config.hpp"
#include "model/safetensors.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

// Keel treats each matrix of each expert as a tensor of its own, in the form
// "model.layers.0.mlp.experts.3.gate_proj.weight". Many files store the matrices of all experts of
// a layer in one tensor with three dimensions, [experts, rows, columns]. Its name is this one
// without the number: "model.layers.0.mlp.experts.gate_proj.weight", or
// "...mlp.experts.gate_up_proj" with the rows of gate, then of up, of each expert.
//
// Replaces these tensors by the tensors of the experts, which are parts of them. `place` returns
// the name of a tensor's file, for errors, and `config_name` is the name of the file with the
// shapes. Throws Error(input) if such a tensor has another shape than the config requires.
std::vector<TensorInfo> split_experts(std::vector<TensorInfo> tensors, const ModelConfig &config,
                                      std::string_view config_name,
                                      const std::function<std::string(const TensorInfo &)> &place);

// The name of the tensor with this matrix of all experts of a layer.
std::string stacked_name(const LayerNames &names, std::string_view matrix);

// The tensor with gate and up of all experts of a layer. It has the same name in all architectures.
inline constexpr std::string_view stacked_gate_up = "mlp.experts.gate_up_proj";

} // namespace keel
