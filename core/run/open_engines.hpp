#pragma once

#include "config/config.hpp"
#include "model/source.hpp"
#include "run/engine_set.hpp"

#include <functional>
#include <memory>
#include <string>

namespace keel {

// Functions that open devices in place of open_device(). For tests.
struct DeviceOpener {
    // Opens the backend `name`. If the config has a section `hybrid`, `name` is one of the names in
    // this section. Otherwise `name` is the id of the backend's plugin. If this function is empty
    // or returns NULL, Keel opens the backend that the config names.
    std::function<std::shared_ptr<Device>(const std::string &name)> backend;
    // Opens the fallback. If empty, Keel opens the fallback that the config names.
    std::function<std::shared_ptr<Device>()> fallback;
};

// Opens the devices that a config names. Makes their engines with executor and KV shape. The
// engines' other members are made later. `sequences`: the number of sequences that share the memory
// of the cache at the same time. `prefill_chunk`: see PipelineOptions.
EngineSet open_engines(const pipeline::PipelineConfig &config, const ModelConfig &model,
                       const std::shared_ptr<HostServices> &host, const DeviceOpener &opener,
                       uint32_t sequences, uint32_t prefill_chunk = 0);

} // namespace keel
