#pragma once

#include "plugin/library.hpp"
#include "plugin/registry.hpp"
#include "run/pipeline.hpp"
#include "support/wrapping_backend.hpp"

#include <memory>
#include <string>
#include <vector>

namespace keel::test {

// The cpu backend in a wrapper, so that it fails on demand or reports another device.
class FailingCpu {
  public:
    FailingCpu()
        : library_(PluginRegistry::process().get("cpu", KEEL_PLUGIN_BACKEND, SourceLocation{})),
          params_(library_.params().bind(given(), {})), backend(&library_.backend()) {}

    std::shared_ptr<Device> open() {
        DeviceSpec spec = backend.spec();
        spec.params.assign(params_.data(), params_.data() + params_.size());
        return Device::open(std::move(spec));
    }

  private:
    static std::vector<GivenParam> given() {
        GivenParam threads;
        threads.key = "threads";
        threads.text = std::string("1");
        return {threads};
    }

    const PluginLibrary &library_;
    ParamValues params_;

  public:
    WrappingBackend backend;
};

// Returns options for a hybrid whose backend `name` is the failing one.
inline PipelineOptions with(FailingCpu &cpu, const std::string &name) {
    PipelineOptions options;
    options.device = [&cpu, name](const std::string &asked) {
        return asked == name ? cpu.open() : nullptr;
    };
    return options;
}

} // namespace keel::test
