#include "ab_commands.hpp"

#include "console.hpp"
#include "program.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/ab/records/merge.hpp"
#include "eval/ab/report/report.hpp"
#include "eval/ab/verdicts/compare.hpp"
#include "eval/ab/verdicts/looks.hpp"

#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace keel::cli {
namespace {

// A separate exit code, so that scripts can distinguish this result from a failed run (1) and a
// wrong command line (2).
constexpr int found_worse = 3;
constexpr int no_verdict = 2; // exit code: the comparison is not possible

struct ExperimentCompareArguments {
    std::string first, second;
    std::vector<std::string> margins; // each has the form METRIC=VALUE
    double confidence = -1;           // below 0: use the confidence of the first experiment
    ab::CompareOptions options;
    bool json = false;
};

int run_compare(const ExperimentCompareArguments &a) {
    ab::CompareOptions options = a.options;
    for (const std::string &text : a.margins) add_margin(text, options.margins);
    if (a.confidence >= 0) options.confidence = a.confidence;
    const ab::Comparison comparison = ab::compare_results(a.first, a.second, options);
    if (a.json) {
        print_json(ab::comparison_json(comparison));
    } else {
        console().out(ab::text_of_comparison(comparison));
    }
    if (!comparison.label.empty()) return no_verdict;
    return comparison.passed() ? 0 : found_worse;
}

void add_ab_compare(Command &ab, Program &program) {
    Command &command = add_command(
        ab, program, "compare", "Compare a second experiment with a first, item by item",
        {{"keel ab compare out/main out/branch",
          "exit code 3 if the second is worse by more than the margin, else 0"},
         {"keel ab compare out/main out/branch --task passkey --margin 'hit=2 points' --strict",
          "passes only if every contrast is shown to be non-inferior"}});
    auto a = std::make_shared<ExperimentCompareArguments>();
    command.argument("FIRST", a->first,
                     "The experiment to compare with: a folder of 'keel ab', or its results.jsonl");
    command.argument("SECOND", a->second, "The experiment to judge, in the same form");
    command.option("--arm NAME", a->options.arms, "Compare only this arm; can be repeated");
    command.option("--task NAME", a->options.tasks, "Compare only this task; can be repeated");
    command.option("--metric NAME", a->options.metrics,
                   "Compare only this metric; can be repeated");
    command.option("--margin METRIC=X", a->margins,
                   "The loss of a metric that is allowed, with its unit: 'hit=5 points', "
                   "'nll=0.02 nats', 'kld=10%' (default: the first experiment's); can be repeated");
    command
        .option(
            "--confidence X", a->confidence,
            "Confidence of intervals and verdicts, 0.5 to 0.9999 (default: the first experiment's)")
        .range(0.5, 0.9999);
    command.flag("--speed", a->options.speed,
                 "Let times, rates and bytes decide too, not only quality");
    command.flag("--strict", a->options.strict,
                 "Exit with 3 also if a contrast is not shown to be non-inferior, or if results "
                 "are missing");
    command.flag("--json", a->json, "Print one JSON object with all contrasts");
    command.action = [a] { return run_compare(*a); };
}

struct MergeArguments {
    std::string output;
    std::vector<std::string> shards;
};

int run_merge(const MergeArguments &a, const Program &program) {
    const std::vector<std::filesystem::path> shards(a.shards.begin(), a.shards.end());
    const ab::MergeResult result = ab::merge_shards(shards, a.output);
    ab::carry_looks(shards, a.output);
    if (!program.quiet)
        console().message(
            "keel: ",
            fmt::format("{} records of {} shards merged; {} more were equal in several shards",
                        result.records, a.shards.size(), result.duplicates));
    for (const std::string &note : result.notes) console().message("keel: warning: ", note);
    for (size_t i = 0; i < result.missing.size() && i < result.commands.size(); ++i)
        console().message("keel: warning: ",
                          fmt::format("shard {} is missing; this runs it alone: {}",
                                      result.missing[i], result.commands[i]));
    const std::string text = ab::write_report(a.output);
    // A look at merged results counts for later merges of the same shards.
    for (const std::filesystem::path &shard : shards)
        ab::carry_looks({a.output},
                        std::filesystem::is_directory(shard) ? shard : shard.parent_path());
    console().out(text);
    return 0;
}

void add_ab_merge(Command &ab, Program &program) {
    Command &command =
        add_command(ab, program, "merge", "Merge the results of an experiment's shards",
                    {{"keel ab merge out/all out/shard-*-of-4.jsonl",
                      "lists missing shards, also in the report"}});
    auto a = std::make_shared<MergeArguments>();
    command.argument("OUT", a->output,
                     "Folder for the merged results; it must not have any results yet");
    command.argument("SHARD", a->shards, "The results of each shard: folders or files").many();
    command.action = [a, &program] { return run_merge(*a, program); };
}

struct ReportArguments {
    std::string folder;
};

void add_ab_report(Command &ab, Program &program) {
    Command &command = add_command(
        ab, program, "report", "Compute the verdicts and report.html again from the records",
        {{"keel ab report out/my-experiment", "also works while the experiment is running"}});
    auto a = std::make_shared<ReportArguments>();
    command.argument("DIR", a->folder, "The results folder of 'keel ab'");
    command.action = [a] {
        console().out(ab::write_report(a->folder));
        return 0;
    };
}

} // namespace

void add_margin(const std::string &text, ab::Margins &margins) {
    const size_t equals = text.find('=');
    const std::string metric = text.substr(0, equals);
    const auto margin = equals == std::string::npos
                            ? std::nullopt
                            : ab::parse_margin(text.substr(equals + 1), ab::metric_named(metric));
    if (!margin)
        throw_error(ErrorKind::usage,
                    "--margin: expected METRIC=MARGIN with the metric's unit, such as 'hit=5 "
                    "points', 'nll=0.02 nats' or 'kld=10%', found '{}'",
                    printable(text, 60));
    margins[metric] = *margin;
}

void add_ab_commands(Command &ab, Program &program) {
    add_ab_compare(ab, program);
    add_ab_merge(ab, program);
    add_ab_power(ab, program);
    add_ab_report(ab, program);
}

} // namespace keel::cli
