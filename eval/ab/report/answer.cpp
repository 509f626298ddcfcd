#include "eval/ab/report/answer.hpp"

#include "base/display.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace keel::ab {
namespace {

using Members = std::vector<const Contrast *>;

// Largest number of contrasts that a sentence names. Contrasts with the reference come first.
constexpr size_t most_named = 3;

// A loss that is shown and smaller than the margin counts as equivalent or non-inferior.
enum class Outcome { better, equivalent, non_inferior, worse, undecided };

Outcome outcome_of(const Contrast &c) {
    if (c.verdict == Verdict::better) return Outcome::better;
    if (c.within_margin) return Outcome::equivalent;
    if (c.non_inferior) return Outcome::non_inferior;
    return c.verdict == Verdict::worse ? Outcome::worse : Outcome::undecided;
}

std::string question_text(const Contrast &c) {
    return fmt::format("{} {}", printable(c.task, 60), printable(c.metric, 60));
}

class Answer {
  public:
    explicit Answer(const Summary &summary) {
        for (const CellSummary &one : summary.cells) bytes_[*one.cell] = one.cell->kv_bytes;
        for (const Contrast &c : summary.contrasts)
            if (c.planned && !c.is_size && c.items > 0) groups_[outcome_of(c)].push_back(&c);
        for (const auto &[outcome, members] : groups_) {
            for (const Contrast *c : members) {
                is_one_question_ = is_one_question_ && question_text(*c) == question_text(*first());
                is_one_protocol_ = is_one_protocol_ && c->protocol == first()->protocol;
            }
        }
    }

    std::vector<std::string> sentences() const {
        if (groups_.empty())
            return {"Nothing was decided: no planned contrast has a verdict. All effects in this "
                    "report are exploratory."};
        const bool is_open = groups_.size() == 1 && groups_.contains(Outcome::undecided);
        std::vector<std::string> out;
        for (const auto &[outcome, members] : groups_)
            out.push_back((is_open ? "Nothing was decided: " : "") + sentence(outcome, members));
        return out;
    }

  private:
    size_t planned() const {
        size_t count = 0;
        for (const auto &group : groups_) count += group.second.size();
        return count;
    }
    const Contrast *first() const { return groups_.begin()->second.front(); }

    // Returns the outcome in words, for example "better than full". `b` is the arm with which all
    // members are compared. If `b` is empty, the members are compared with different arms.
    static std::string claim(Outcome outcome, const std::string &b) {
        const auto to = [&](const char *word) { return b.empty() ? "" : word + b; };
        switch (outcome) {
        case Outcome::better: return "better" + to(" than ");
        case Outcome::equivalent:
            return "equivalent" + to(" to ") + " (no loss and no gain as large as the margin)";
        case Outcome::non_inferior:
            return "non-inferior" + to(" to ") + " (no loss as large as the margin)";
        case Outcome::worse: return "worse" + to(" than ");
        case Outcome::undecided: break;
        }
        return "not distinguishable" + to(" from ");
    }

    std::string sentence(Outcome outcome, const Members &members) const {
        const Contrast &head = *members.front();
        const bool is_one_arm = std::all_of(members.begin(), members.end(), [&](const auto *c) {
            return c->b == head.b && c->b_budget == head.b_budget;
        });
        const bool all = members.size() <= most_named;
        std::string out =
            fmt::format("{} of {} planned contrasts{} {} {}{}", members.size(), planned(),
                        is_one_question_ ? " on " + question_text(head) : "",
                        members.size() == 1 ? "is" : "are",
                        claim(outcome, is_one_arm ? arm_text(head.b, head.b_budget) : ""),
                        all ? ": " : ", such as ");
        for (size_t i = 0; i < std::min(members.size(), most_named); ++i)
            out += (i == 0 ? "" : "; ") + one(*members[i], is_one_arm);
        return out + ".";
    }

    // One contrast as text. For example: "window at tokens:128 under question_blind (-0.36 [-0.44,
    // -0.28]; 2.0 KiB instead of 8.0 KiB)"
    std::string one(const Contrast &c, bool is_one_arm) const {
        std::string out = arm_text(c.a, c.a_budget);
        if (!is_one_arm) out += " against " + arm_text(c.b, c.b_budget);
        if (!is_one_question_) out += " on " + question_text(c);
        if (!is_one_protocol_ && !c.protocol.empty()) out += " under " + printable(c.protocol, 40);
        if (c.length >= 0) out += fmt::format(" after {} tokens", c.length);
        out += " (" + effect_text(c, c.effect);
        if (c.interval) out += " " + interval_text(c);
        return out + held(c) + remark(c) + ")";
    }

    std::string held(const Contrast &c) const {
        const double a = bytes_of(c, c.a, c.a_budget), b = bytes_of(c, c.b, c.b_budget);
        if (a <= 0 || b <= 0) return "";
        return fmt::format("; {} instead of {}", bytes_text(a), bytes_text(b));
    }
    double bytes_of(const Contrast &c, const std::string &arm, const std::string &budget) const {
        const auto found = bytes_.find(CellKey{arm, budget, c.protocol, c.task, c.metric});
        return found == bytes_.end() ? 0 : found->second;
    }

    static std::string remark(const Contrast &c) {
        if (c.verdict == Verdict::worse && (c.within_margin || c.non_inferior))
            return "; a loss smaller than the margin";
        if (outcome_of(c) != Outcome::undecided) return "";
        if (c.verdict == Verdict::too_few) return "; too few documents for a verdict";
        if (c.verdict == Verdict::equal) return "; equal in every item, which is no proof";
        return c.detectable ? "; could see " + detectable_text(c) : "";
    }

    std::map<CellKey, double> bytes_;
    std::map<Outcome, Members> groups_;
    bool is_one_question_ = true, is_one_protocol_ = true;
};

} // namespace

std::vector<std::string> answer_sentences(const Summary &summary) {
    return Answer(summary).sentences();
}

} // namespace keel::ab
