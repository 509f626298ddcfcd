#include "platform/machine.hpp"

#include "base/display.hpp"

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <string_view>

namespace keel {
namespace {

namespace fs = std::filesystem;

std::string trimmed(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

// x86 has "model name". ARM kernels often have only the board's name ("Hardware"), or no name.
std::string cpu_name(const fs::path &proc) {
    for (const std::string_view key : {"model name", "Model", "Hardware"}) {
        std::ifstream in(proc / "cpuinfo");
        std::string line;
        while (std::getline(in, line)) {
            const size_t colon = line.find(':');
            if (colon == std::string::npos ||
                trimmed(std::string_view(line).substr(0, colon)) != key)
                continue;
            return printable(trimmed(std::string_view(line).substr(colon + 1)), 80);
        }
    }
    return {};
}

// Parses "32768K" or "1M". Returns 0 for any other text.
uint64_t cache_size(const fs::path &file) {
    std::ifstream in(file);
    uint64_t number = 0;
    char unit = 0;
    if (!(in >> number) || number > (uint64_t{1} << 30)) return 0;
    in >> unit;
    return unit == 'K' ? number << 10 : unit == 'M' ? number << 20 : number;
}

} // namespace

MachineInfo machine_info(const fs::path &proc, const fs::path &cpus) {
    MachineInfo info;
    info.cpu = cpu_name(proc);
    for (const char *index : {"index0", "index1", "index2", "index3", "index4"}) {
        info.last_level_cache =
            std::max(info.last_level_cache, cache_size(cpus / "cpu0" / "cache" / index / "size"));
    }
    return info;
}

} // namespace keel
