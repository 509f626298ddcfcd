#include "eval/ab/verdicts/labels.hpp"

#include "base/display.hpp"

#include <fmt/format.h>

namespace keel::ab {

std::string label_of(const Header &h, const Contrast &c) {
    if (!h.plan) return {};
    if (h.plan->is_changed()) return changed_plan_label;
    const uint64_t planned = h.plan->items(c.task);
    if (c.kind == Contrast::Kind::rerun || c.items >= planned) return {};
    return fmt::format("early look: {} of {} items", c.items, planned);
}

void label_contrast(const Header &h, Contrast &c, LookBook *looks) {
    c.label = label_of(h, c);
    // Documents run in order, so a look contains all documents of earlier looks. The results of a
    // single shard, or of a merge of only some shards, can lack documents of earlier looks.
    const bool is_under_rule = looks != nullptr && h.plan && !h.plan->is_changed() &&
                               h.statistics.looks != Looks::none && h.shards == 1 &&
                               h.missing_shards == 0 && c.is_listed;
    if (is_under_rule) {
        c.looks = looks->look(c, h.plan->items(c.task));
        if (c.looks) return;
        if (c.label.empty()) c.label = "exploratory: the items do not fit the recorded looks";
    }
    if (c.label.empty()) return;
    c.planned = false;
    c.family = "exploratory";
    c.inference.reset();
}

std::string plan_line(const Header &h) {
    if (!h.plan)
        return "No plan was frozen: nothing shows that the contrasts were chosen before the "
               "results ('keel ab plan').";
    if (!h.plan->is_changed())
        return fmt::format("Plan {}, frozen before the run.{}", printable(h.plan->hash, 40),
                           h.statistics.looks == Looks::none
                               ? ""
                               : " Its rule for early looks is alpha spending of the "
                                 "O'Brien-Fleming type; each report is a look.");
    std::string out = fmt::format("THE PLAN {} WAS CHANGED, so all results are exploratory:",
                                  printable(h.plan->hash, 40));
    constexpr size_t most = 10;
    for (size_t i = 0; i < std::min(h.plan->changes.size(), most); ++i)
        out += "\n  " + change_text(h.plan->changes[i]);
    if (h.plan->changes.size() > most)
        out += fmt::format("\n  ... and {} more: see the header of results.jsonl",
                           h.plan->changes.size() - most);
    return out;
}

} // namespace keel::ab
