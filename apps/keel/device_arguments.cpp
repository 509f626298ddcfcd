#include "device_arguments.hpp"

#include "base/error.hpp"
#include "config/override.hpp"

namespace keel::cli {

void DeviceArguments::add_to(Command &command, bool many) {
    const char *text = "The backend that computes: its name, or the path of its library";
    Option &backend =
        command
            .option("--backend NAME", backends,
                    many ? std::string(text) + "; can be repeated" : std::string(text))
            .shows_default();
    if (!many) backend.last_counts();
    command
        .option("--device WHICH", device, "Device of the backend: its index, or a part of its name")
        .shows_default();
    command.option("--param KEY=VALUE", params, "Set a parameter of the backend; can be repeated");
}

pipeline::BackendSection DeviceArguments::section(const std::string &backend) const {
    std::vector<std::string> sets{"model.path=.", "backend.plugin=" + backend,
                                  "backend.device=" + device};
    for (const std::string &param : params) {
        if (param.find('=') == std::string::npos || param.starts_with("="))
            throw_error(ErrorKind::usage, "--param: expected KEY=VALUE, found '{}'", param);
        sets.push_back("backend.params." + param);
    }
    return pipeline::config_from_overrides(sets).backend;
}

} // namespace keel::cli
