// The file in which a driver's compiled pipelines are kept from run to run. It is a help and never a need: what is wrong with it is
// passed over.
#pragma once

#include "vulkan/device.hpp"

namespace keel_vulkan {

// Path of the file for a device and driver in `folder` ("auto": $XDG_CACHE_HOME/keel/vulkan or ~/.cache/keel/vulkan); empty for "off" or
// where there is no home.
std::string pipeline_cache_path(const DeviceFacts &facts, const char *folder);
// The driver's data from the file; empty if there is none, or it is of another device or driver, cut off or changed.
std::vector<uint8_t> read_pipeline_cache(const std::string &path, const DeviceFacts &facts);
// Replaces the file in one step, making its folder.
void write_pipeline_cache(const std::string &path, const std::vector<uint8_t> &data) noexcept;

} // namespace keel_vulkan
