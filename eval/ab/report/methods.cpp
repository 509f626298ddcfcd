#include "eval/ab/report/methods.hpp"

#include "base/display.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <set>

namespace keel::ab {
namespace {

constexpr size_t most_listed = 30;

std::string list_text(const std::vector<std::string> &all) {
    if (all.size() <= most_listed) return fmt::format("{}", fmt::join(all, ", "));
    return fmt::format("{} and {} more", fmt::join(all.begin(), all.begin() + most_listed, ", "),
                       all.size() - most_listed);
}

std::string count_text(uint64_t count, const char *one) {
    return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

// Returns the distinct texts of the cells, in the order of the cells, without empty texts.
template <typename Of> std::vector<std::string> distinct(const Table &table, Of of) {
    std::vector<std::string> out;
    for (const Cell &cell : table.cells) {
        const std::string text = printable(of(cell), 80);
        if (!text.empty() && std::find(out.begin(), out.end(), text) == out.end())
            out.push_back(text);
    }
    return out;
}

class MethodsWriter {
  public:
    MethodsWriter(const Table &table, const Summary &summary)
        : table_(table), summary_(summary), header_(summary.header) {
        for (const Contrast &c : summary.contrasts) {
            if (c.items == 0) continue;
            methods_.insert(c.method);
            if (c.planned && !c.is_size) planned_.push_back(&c);
        }
    }

    Methods write() {
        out_.paragraphs = {setup(), comparison(), family(), measures(), software()};
        return std::move(out_);
    }

  private:
    void cite(const char *reference) { out_.references.emplace_back(reference); }

    std::string setup() const {
        std::vector<std::string> arms, tasks;
        for (const Arm &arm : header_.arms)
            arms.push_back(arm.text.empty() ? printable(arm.name, 60)
                                            : fmt::format("{} ({})", printable(arm.name, 60),
                                                          printable(arm.text, 200)));
        std::map<std::string, std::pair<uint64_t, uint64_t>> sizes;
        for (const CellSummary &one : summary_.cells) {
            auto &[items, documents] = sizes[one.cell->task];
            items = std::max(items, one.items);
            documents = std::max(documents, one.clusters);
        }
        for (const std::string &task : distinct(table_, [](const Cell &c) { return c.task; })) {
            const auto size = sizes.find(task);
            tasks.push_back(size == sizes.end()
                                ? task
                                : fmt::format("{} ({} in {})", task,
                                              count_text(size->second.first, "item"),
                                              count_text(size->second.second, "document")));
        }
        const auto budgets = distinct(table_, [](const Cell &c) { return c.budget; });
        const auto protocols = distinct(table_, [](const Cell &c) { return c.protocol; });
        std::string out = fmt::format("We ran {} of the model {} on the same items: {}. ",
                                      count_text(header_.arms.size(), "arm"),
                                      printable(header_.model, 200), list_text(arms));
        if (!header_.reference.empty())
            out += fmt::format("The reference is {}. ", printable(header_.reference, 60));
        out += fmt::format("Cache budgets: {}. Tasks: {}. ", list_text(budgets), list_text(tasks));
        if (!protocols.empty()) out += fmt::format("Protocols: {}. ", list_text(protocols));
        for (const auto &[name, fact] : header_.facts)
            out += fmt::format("{}: {}. ", printable(name, 60), printable(fact, 200));
        return out + seeds();
    }

    std::string seeds() const {
        uint32_t most = 1;
        for (const Cell &cell : table_.cells)
            for (const Point &point : cell.points) most = std::max(most, point.seeds);
        if (most == 1) return "Each arm ran once on each item.";
        return fmt::format("Policies that draw random numbers ran with {} seeds, and the number of "
                           "an item is the mean over its seeds; other arms ran once.",
                           most);
    }

    std::string comparison() {
        std::string out = "Arms were compared item by item. Documents are the independent units: "
                          "the items of one document form a cluster.";
        const auto uses = [&](const char *method) { return methods_.contains(method); };
        if (uses("score (McNemar, Tango)")) {
            out += " Differences of hit rates were tested with the score test for paired rates, "
                   "and their intervals invert it (McNemar 1947; Tango 1998).";
            cite("McNemar, Q. (1947). Psychometrika 12, 153-157.");
            cite("Tango, T. (1998). Statistics in Medicine 17, 891-908.");
            out += " Intervals of single rates are Wilson's (1927).";
            cite("Wilson, E. B. (1927). Journal of the American Statistical Association 22, "
                 "209-212.");
        }
        if (uses("score, shares"))
            out += " Other shares were tested with the same score test, in steps of the size by "
                   "which documents differ.";
        if (uses("t, bootstrap t")) {
            out +=
                fmt::format(" Other numbers were tested with Student's t joined with bootstrap-t "
                            "over documents ({} resamples, seed {}; Efron and Tibshirani 1993): "
                            "a value is excluded only if both methods exclude it.",
                            header_.statistics.resamples, header_.statistics.seed);
            cite("Efron, B. and Tibshirani, R. (1993). An Introduction to the Bootstrap. Chapman "
                 "and Hall.");
        }
        if (uses("t")) out += " With more than 1000 documents, Student's t was used.";
        if (uses("trimmed t")) {
            out += " Speeds were compared by means without the highest and the lowest fifth of the "
                   "rounds (Yuen 1974).";
            cite("Yuen, K. K. (1974). Biometrika 61, 165-170.");
        }
        return out;
    }

    std::string family() {
        if (planned_.empty())
            return "No contrast was planned, so nothing was tested; all effects and intervals are "
                   "exploratory.";
        const double confidence = 100 * header_.statistics.confidence;
        cite("Holm, S. (1979). Scandinavian Journal of Statistics 6, 65-70.");
        cite("Guilbaud, O. (2008). Biometrical Journal 50, 678-692.");
        cite("Strassburger, K. and Bretz, F. (2008). Statistics in Medicine 27, 4914-4927.");
        std::string out = fmt::format(
            "{} planned before the run (primary metric: {}). Their p-values are adjusted by Holm's "
            "method (1979), and their intervals hold together with {:g}% confidence (Guilbaud "
            "2008; "
            "Strassburger and Bretz 2008). ",
            planned_.size() == 1 ? "One contrast was"
                                 : fmt::format("{} contrasts were", planned_.size()),
            summary_.primary.empty() ? "none" : printable(summary_.primary, 120), confidence);
        if (std::any_of(planned_.begin(), planned_.end(),
                        [](const Contrast *c) { return c->margin.has_value(); })) {
            cite("Schuirmann, D. J. (1987). Journal of Pharmacokinetics and Biopharmaceutics 15, "
                 "657-680.");
            out += fmt::format(
                "Equivalence was tested with two one-sided tests, non-inferiority with one "
                "(Schuirmann 1987), each at the level {:g}% and adjusted by Holm's method; "
                "margins: "
                "{}. ",
                (100 - confidence) / 2, margins_text(summary_.contrasts));
        }
        return out + fmt::format("All other contrasts are exploratory: they have effects and {:g}% "
                                 "intervals by themselves, and no tests.",
                                 confidence);
    }

    std::string measures() const {
        std::string out =
            "Bytes were measured, not computed: blocks of keys and values plus the data that is "
            "held for the policy, as a mean while items were scored and as a peak.";
        if (!summary_.noise.empty())
            out += " The reference ran twice, and effects up to the difference of its two runs "
                   "count as noise.";
        return out;
    }

    std::string software() const {
        std::string out = fmt::format("Software: Keel {}", printable(header_.version, 40));
        if (!header_.commit.empty()) out += fmt::format(" ({})", printable(header_.commit, 60));
        out += fmt::format("; config hash {}", printable(header_.config_hash, 40));
        if (!header_.machine.empty())
            out += fmt::format("; machine: {}", printable(header_.machine, 300));
        if (!header_.date.empty()) out += fmt::format("; begun {}", printable(header_.date, 40));
        return out + ".";
    }

    const Table &table_;
    const Summary &summary_;
    const Header &header_;
    std::set<std::string> methods_;
    std::vector<const Contrast *> planned_;
    Methods out_;
};

} // namespace

Methods methods_of(const Table &table, const Summary &summary) {
    return MethodsWriter(table, summary).write();
}

} // namespace keel::ab
