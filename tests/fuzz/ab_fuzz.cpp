// Input: the file of an experiment, or its frozen plan. Any input gives either a config whose
// numbers are within their bounds, or a plan that has its own hash, or a keel::Error with a place.
#include "base/error.hpp"
#include "eval/ab/plan/config.hpp"
#include "eval/ab/plan/frozen_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace ab = keel::ab;

namespace {

void check_error(const keel::Error &error) {
    const std::string_view message = error.what();
    if (!message.starts_with("fuzz.yaml") || message.find('\n') != std::string_view::npos)
        std::abort();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try {
        const ab::Config c =
            ab::parse_config({reinterpret_cast<const char *>(data), size}, "fuzz.yaml", "/folder");
        const bool sound = !c.arms.empty() && c.arms.size() <= ab::Config::most_arms &&
                           !c.tasks.empty() && c.tasks.size() <= ab::Config::most_tasks &&
                           c.budgets.size() <= ab::Config::most_budgets && !c.seeds.empty() &&
                           c.seeds.size() <= ab::Config::most_seeds && !c.protocols.empty() &&
                           c.base.is_absolute() && c.output.is_absolute() && !c.reference.empty();
        if (!sound) std::abort();
    } catch (const keel::Error &error) {
        check_error(error);
    }
    try {
        const ab::PlanRecord plan =
            ab::parse_plan({reinterpret_cast<const char *>(data), size}, "fuzz.yaml");
        if (plan.hash != ab::plan_hash(plan.entries) || plan.is_changed()) std::abort();
    } catch (const keel::Error &error) {
        check_error(error);
    }
    return 0;
}
