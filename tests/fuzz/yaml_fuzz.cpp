// Input: a pipeline file and overrides. Lines that begin with "--set " are overrides; the other
// lines are the file. Any input gives either a config or a keel::Error. A config that is written in
// its resolved form and read back must be the same config.
#include "base/error.hpp"
#include "config/config.hpp"
#include "config/config_writer.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    constexpr std::string_view flag = "--set ";
    std::string file;
    std::vector<std::string> overrides;
    std::string_view rest(reinterpret_cast<const char *>(data), size);
    while (!rest.empty()) {
        const std::string_view line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(line.size() < rest.size() ? line.size() + 1 : line.size());
        if (line.starts_with(flag)) {
            overrides.emplace_back(line.substr(flag.size()));
        } else {
            file.append(line).push_back('\n');
        }
    }
    std::string written;
    try {
        const auto config = keel::pipeline::parse_config(file, "fuzz.yaml", "/folder", overrides);
        written = keel::pipeline::to_yaml(config, size % 2 == 0);
        const auto again = keel::pipeline::parse_config(written, "written.yaml", "/elsewhere");
        if (!(again == config)) std::abort();
    } catch (const keel::Error &error) {
        const std::string_view message = error.what();
        if (!written.empty() || message.empty() || message.find('\n') != std::string_view::npos)
            std::abort();
    }
    return 0;
}
