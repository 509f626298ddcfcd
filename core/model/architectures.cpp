#include "model/architectures.hpp"

#include <algorithm>
#include <array>

namespace keel {
namespace {

constexpr std::array table = {
    Architecture{"LlamaForCausalLM", "llama", false, false, false},
};

} // namespace

std::span<const Architecture> architectures() {
    return table;
}

const Architecture *find_architecture(std::string_view name) {
    const auto found =
        std::find_if(table.begin(), table.end(), [&](const Architecture &a) { return a.name == name; });
    return found == table.end() ? nullptr : &*found;
}

std::string architecture_names() {
    std::string names;
    for (const Architecture &a : table) {
        if (!names.empty()) names += ", ";
        names += a.name;
    }
    return names;
}

} // namespace keel
