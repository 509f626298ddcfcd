#include "ab_commands.hpp"

#include "console.hpp"

#include "eval/ab/records/table.hpp"
#include "eval/ab/verdicts/power.hpp"
#include "eval/ab/verdicts/summary.hpp"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace keel::cli {
namespace {

struct PowerArguments {
    std::string results;
    std::vector<std::string> margins;
    double power = 0.8;
    bool json = false;
};

int run_power(const PowerArguments &a) {
    ab::PowerOptions options;
    options.power = a.power;
    for (const std::string &text : a.margins) add_margin(text, options.margins);
    ab::Names names;
    const ab::Table table = ab::load_table(a.results, names);
    const ab::PowerTable power = ab::power_of_pilot(ab::summarize(table, names), options);
    if (a.json) {
        print_json(ab::power_json(power));
    } else {
        console().out(ab::power_text(power));
    }
    return 0;
}

} // namespace

void add_ab_power(Command &ab, Program &program) {
    Command &command = add_command(
        ab, program, "power", "Say how many documents the planned contrasts need, from a pilot",
        {{"keel ab power out/pilot --margin 'hit=5 points'",
          "documents to find a loss of 5 points four times out of five"}});
    auto a = std::make_shared<PowerArguments>();
    command.argument("RESULTS", a->results,
                     "The pilot: a folder of 'keel ab', or its results.jsonl");
    command.option("--margin METRIC=X", a->margins,
                   "The margin of a metric, with its unit: 'hit=5 points' (default: the pilot's); "
                   "can be repeated");
    command.option("--power X", a->power, "The wanted power, 0.5 to 0.99 (default: 0.8)")
        .range(0.5, 0.99);
    command.flag("--json", a->json, "Print one JSON object");
    command.action = [a] { return run_power(*a); };
}

} // namespace keel::cli
