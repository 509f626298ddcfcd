#pragma once

#include "model/source.hpp"

#include <string>
#include <vector>

namespace keel {

// Checks that every tensor is there that the model's config.json asks for, with its shape; reads no weights. Throws
// Error(input). Returns the names of tensors that nothing asks for.
std::vector<std::string> check_model_tensors(const ModelSource &source);

} // namespace keel
