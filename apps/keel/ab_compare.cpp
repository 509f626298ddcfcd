#include "ab_commands.hpp"

#include "console.hpp"
#include "program.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/ab/records/merge.hpp"
#include "eval/ab/report/report.hpp"
#include "eval/ab/verdicts/compare.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace keel::cli {
namespace {

// An exit code of its own, so that a gate can tell this result from a failed run (1) and a wrong
// request (2).
constexpr int found_worse = 3;

struct ExperimentCompareArguments {
    std::string first, second;
    std::vector<std::string> margins; // "METRIC=VALUE"
    double confidence = -1;           // below 0: the value of the first experiment
    ab::CompareOptions options;
    bool json = false;
};

// "hit=5 points"
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
    return comparison.passed() ? 0 : found_worse;
}

void add_ab_compare(Command &ab, Program &program) {
    Command &command = add_command(
        ab, program, "compare", "Hold a second experiment against a first, item by item",
        {{"keel ab compare out/main out/branch", "exit code 0: no worse than the margin, 3: worse"},
         {"keel ab compare out/main out/branch --task passkey --margin 'hit=2 points' --strict",
          "pass only what is shown to be non-inferior"}});
    auto a = std::make_shared<ExperimentCompareArguments>();
    command.argument("FIRST", a->first,
                     "What is compared against: a folder of 'keel ab', or its results.jsonl");
    command.argument("SECOND", a->second, "What is judged");
    command.option("--arm NAME", a->options.arms, "This arm alone; can be repeated");
    command.option("--task NAME", a->options.tasks, "This task alone; can be repeated");
    command.option("--metric NAME", a->options.metrics, "This metric alone; can be repeated");
    command.option("--margin METRIC=X", a->margins,
                   "What may be lost of a metric, with its unit: 'hit=5 points', 'nll=0.02 nats', "
                   "'kld=10%' (default: the first experiment's); can be repeated");
    command
        .option("--confidence X", a->confidence,
                "Of intervals and verdicts, 0.5 to 0.9999 (default: the first experiment's)")
        .range(0.5, 0.9999);
    command.flag("--speed", a->options.speed,
                 "Times, rates and bytes decide as well, not qualities alone");
    command.flag("--strict", a->options.strict,
                 "Exit with 3 too if a contrast is not shown to be non-inferior, or results "
                 "are missing");
    command.flag("--json", a->json, "Print one JSON object, with every contrast");
    command.action = [a] { return run_compare(*a); };
}

struct MergeArguments {
    std::string output;
    std::vector<std::string> shards;
};

int run_merge(const MergeArguments &a, const Program &program) {
    const ab::MergeResult result = ab::merge_shards({a.shards.begin(), a.shards.end()}, a.output);
    if (!program.quiet)
        console().message(
            "keel: ",
            fmt::format("{} records of {} shards merged, {} that several had written once",
                        result.records, a.shards.size(), result.duplicates));
    console().out(ab::write_report(a.output));
    return 0;
}

void add_ab_merge(Command &ab, Program &program) {
    Command &command = add_command(ab, program, "merge", "Put the shards of an experiment together",
                                   {{"keel ab merge out/all out/shard-*-of-4.jsonl",
                                     "missing shards are named, in the report too"}});
    auto a = std::make_shared<MergeArguments>();
    command.argument("OUT", a->output, "Folder for the merged results; it must hold none yet");
    command.argument("SHARD", a->shards, "Results of each shard: folders or files").many();
    command.action = [a, &program] { return run_merge(*a, program); };
}

struct ReportArguments {
    std::string folder;
};

void add_ab_report(Command &ab, Program &program) {
    Command &command = add_command(
        ab, program, "report", "Work out verdicts and report.html again from the records",
        {{"keel ab report out/my-experiment", "of a run that still goes on, too"}});
    auto a = std::make_shared<ReportArguments>();
    command.argument("DIR", a->folder, "A folder of 'keel ab'");
    command.action = [a] {
        console().out(ab::write_report(a->folder));
        return 0;
    };
}

} // namespace

void add_ab_commands(Command &ab, Program &program) {
    add_ab_compare(ab, program);
    add_ab_merge(ab, program);
    add_ab_report(ab, program);
}

} // namespace keel::cli
