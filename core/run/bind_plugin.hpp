#pragma once

#include "config/config.hpp"
#include "device/device.hpp"
#include "plugin/registry.hpp"

#include <memory>

namespace keel {

// A plugin that a config names. It is loaded, and its parameters are bound.
struct BoundPlugin {
    const PluginLibrary *library = nullptr; // lives as long as the process
    ParamValues params;
    PluginPlaces places; // places of the plugin in the config
};

// Loads the plugin that a section of the config names, and binds its parameters. Each error names
// the place in the config.
BoundPlugin bind_plugin(const pipeline::PluginSection &section, keel_plugin_kind kind);
// Opens the device that a backend section names. "reference" names the backend that is part of the
// core.
std::shared_ptr<Device> open_device(const pipeline::BackendSection &section,
                                    const std::shared_ptr<HostServices> &host);

} // namespace keel
