#pragma once

#include "program.hpp"

#include "config/backend_section.hpp"

#include <string>
#include <vector>

namespace keel::cli {

// The options of a command that uses a backend without a model: --backend, --device, --param.
struct DeviceArguments {
    std::vector<std::string> backends = {"cpu"};
    std::string device = "auto";
    std::vector<std::string> params;

    // `many`: --backend may be repeated. Otherwise the last one counts.
    void add_to(Command &command, bool many);
    // The section `backend` of a pipeline file that these options describe. Throws Error(usage) for
    // a --param that is not KEY=VALUE.
    pipeline::BackendSection section(const std::string &backend) const;
};

} // namespace keel::cli
