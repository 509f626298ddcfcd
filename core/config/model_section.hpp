#pragma once

#include "config/setting.hpp"

#include <keel/tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>

namespace keel::pipeline {

struct ModelSection {
    Setting<std::filesystem::path> path; // an absolute path
    Setting<keel_dtype> weights;         // KEEL_DTYPE_NONE: the type in the model's files
    Setting<std::optional<int64_t>> context;
    bool operator==(const ModelSection &) const = default;
};

} // namespace keel::pipeline
