#pragma once

#include "config/setting.hpp"

#include <string>

namespace keel::pipeline {

struct BackendSection : PluginSection {
    Setting<std::string> device; // "auto", the index of a device, or a part of a device's name
    bool operator==(const BackendSection &) const = default;
};

} // namespace keel::pipeline
