#include "ab_plan.hpp"

#include "console.hpp"
#include "interrupt.hpp"
#include "pipeline_arguments.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/ab/plan/frozen_plan.hpp"
#include "eval/ab/records/record.hpp"
#include "plugin/host.hpp"
#include "run/pipeline.hpp"

#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

namespace keel::cli {
namespace {

namespace fs = std::filesystem;

struct PlanArguments {
    std::string file, out;
    std::vector<std::string> sets;
    uint32_t batch = 0; // 0: the value of the file
    bool json = false;
};

int write_plan(const PlanArguments &a) {
    pipeline::require_path(a.file, "an experiment (.yaml)");
    ab::Config config = ab::load_config(a.file);
    if (a.batch > 0) config.batch = a.batch;
    const auto host = std::make_shared<HostServices>();
    const InterruptGuard guard(*host);
    ab::ResolveOptions resolve;
    resolve.sets = a.sets;
    resolve.host = host;
    const ab::Experiment experiment = ab::resolve_experiment(std::move(config), resolve);
    const ab::FrozenPlan plan = ab::freeze_plan(experiment);
    const fs::path out =
        a.out.empty() ? fs::path(a.file).replace_extension(".plan.yaml") : fs::path(a.out);
    ab::write_plan_file(out, plan);
    const ab::PlanRecord &record = plan.record;
    const std::vector<std::string> hypotheses = record.all(ab::plan_hypotheses);
    if (a.json) {
        nlohmann::ordered_json j;
        j["plan"] = out.string();
        j["hash"] = record.hash;
        j["hypotheses"] = hypotheses;
        print_json(j);
        return 0;
    }
    std::string text;
    for (size_t i = 0; i < hypotheses.size(); ++i)
        text += fmt::format("{}. {}\n", i + 1, hypotheses[i]);
    text += fmt::format(
        "primary {}; {} tests in the family, Holm at {}; looks: {}\n",
        *record.find(ab::plan_primary), record.find("statistics tests in the family").value_or("?"),
        record.find("statistics level of the family").value_or("?"), *record.find(ab::plan_looks));
    for (const ab::Task &task : experiment.config.tasks)
        text += fmt::format("task {}: {} items{}\n", task.name, record.items(task.name),
                            task.kind == ab::TaskKind::speed ? " at each depth" : "");
    text += fmt::format("plan: {}\nhash: {}\n", printable(out.string(), 300), record.hash);
    console().out(text);
    return 0;
}

} // namespace

std::optional<ab::PlanRecord> plan_of_run(const ab::Experiment &experiment, const std::string &file,
                                          bool accepts_changes) {
    if (file.empty()) {
        if (experiment.config.statistics.looks != ab::Looks::none)
            throw_error(ErrorKind::usage,
                        "statistics.looks: a rule for early looks counts only if it was frozen "
                        "before the run; freeze the plan with 'keel ab plan' and give it with "
                        "--plan, or leave the key out");
        return std::nullopt;
    }
    ab::PlanRecord plan = ab::load_plan(file);
    plan.changes = ab::plan_changes(plan, ab::freeze_plan(experiment).record);
    if (plan.is_changed() != accepts_changes && accepts_changes)
        throw_error(ErrorKind::usage,
                    "--changed-plan: the experiment does not differ from the plan {}; leave the "
                    "option out",
                    printable(file, 300));
    if (!plan.is_changed()) return plan;
    console().message("keel: ", fmt::format("THE PLAN WAS CHANGED: the experiment differs from {} "
                                            "in {} places:",
                                            printable(file, 300), plan.changes.size()));
    for (const ab::PlanChange &change : plan.changes)
        console().message("keel: ", "  " + ab::change_text(change));
    if (!accepts_changes)
        throw_error(
            ErrorKind::input,
            "{}: the experiment differs from the plan ({} places, listed above); restore the "
            "experiment, or continue with --changed-plan: then all results are exploratory",
            printable(file, 300), plan.changes.size());
    console().message("keel: ", "--changed-plan: all results are exploratory, without a verdict");
    return plan;
}

void check_plan_of_folder(const ab::Experiment &experiment, const ab::Shard &shard,
                          const std::optional<ab::PlanRecord> &plan) {
    ab::Header wanted;
    wanted.plan = plan;
    for (const ab::Shard &part : {ab::Shard{}, shard}) {
        const fs::path file = experiment.config.output / part.file_name();
        std::error_code error;
        if (!fs::exists(file, error)) continue;
        const ab::Header there = ab::read_header(file);
        // A later check refuses the results of another experiment. The error of that check has the
        // differences.
        if (there.config_hash == experiment.hash)
            ab::require_same_plan(file.string(), there, wanted);
    }
}

void add_ab_plan(Command &ab, Program &program) {
    Command &command = add_command(
        ab, program, "plan", "Freeze the plan of an experiment before it runs",
        {{"keel ab plan my.yaml", "writes my.plan.yaml and prints the hypotheses and the hash"},
         {"keel ab my.yaml --plan my.plan.yaml", "the run is checked against the plan"}});
    auto a = std::make_shared<PlanArguments>();
    command.argument("FILE", a->file, "The experiment, a YAML file");
    command.option("--out PLAN", a->out, "File of the plan (default: FILE with .plan.yaml)");
    command.option("--set KEY=VALUE", a->sets,
                   "Change a key of the base pipeline, as in the run; can be repeated");
    command.option("--batch N", a->batch, "Documents of an arm that take decode steps together")
        .range(1, Pipeline::most_batch);
    command.flag("--json", a->json, "Print the file, the hash and the hypotheses as JSON");
    command.action = [a] { return write_plan(*a); };
}

} // namespace keel::cli
