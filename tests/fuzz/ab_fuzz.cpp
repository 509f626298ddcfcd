// Input: the file of an experiment. Any input gives either a config whose numbers are within their
// bounds, or a keel::Error with a place.
#include "base/error.hpp"
#include "eval/ab/plan/config.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

using keel::ab::Config;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try {
        const Config c = keel::ab::parse_config({reinterpret_cast<const char *>(data), size},
                                                "fuzz.yaml", "/folder");
        const bool sound = !c.arms.empty() && c.arms.size() <= Config::most_arms &&
                           !c.tasks.empty() && c.tasks.size() <= Config::most_tasks &&
                           c.budgets.size() <= Config::most_budgets && !c.seeds.empty() &&
                           c.seeds.size() <= Config::most_seeds && !c.protocols.empty() &&
                           c.base.is_absolute() && c.output.is_absolute() && !c.reference.empty();
        if (!sound) std::abort();
    } catch (const keel::Error &error) {
        const std::string_view message = error.what();
        if (!message.starts_with("fuzz.yaml") || message.find('\n') != std::string_view::npos)
            std::abort();
    }
    return 0;
}
