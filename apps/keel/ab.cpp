#include "ab_commands.hpp"
#include "ab_plan.hpp"
#include "build_info.hpp"
#include "console.hpp"
#include "interrupt.hpp"
#include "pipeline_arguments.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/ab/plan/frozen_plan.hpp"
#include "eval/ab/records/machine_kind.hpp"
#include "eval/ab/records/merge.hpp"
#include "eval/ab/records/table.hpp"
#include "eval/ab/report/cost.hpp"
#include "eval/ab/report/report.hpp"
#include "eval/ab/run/runner.hpp"
#include "eval/ab/run/shard_sources.hpp"
#include "eval/ab/verdicts/power.hpp"
#include "eval/page/text_table.hpp"
#include "platform/clock.hpp"
#include "platform/machine.hpp"
#include "platform/memory.hpp"
#include "platform/paths.hpp"
#include "platform/threads.hpp"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

namespace keel::cli {
namespace {

namespace fs = std::filesystem;

struct RunArguments {
    std::string file, output, shard, plan, pilot;
    std::vector<std::string> sets;
    int64_t items = 0;
    uint32_t batch = 0;  // 0: use the value of the file
    uint32_t shards = 0; // 0: not given
    bool again = false, dry_run = false, json = false, changed_plan = false;
};

// Facts that affect the results but are not in the experiment's file: the version and commit of the
// program. If the build has no exact commit, the size and the time of the program's file identify
// the program.
std::string circumstances() {
    const std::string commit = build_commit();
    std::string text = fmt::format("{} {}", KEEL_VERSION, commit);
    if (!commit.empty() && !commit.ends_with("-dirty")) return text;
    std::error_code error;
    const fs::path program = executable_path();
    return text + fmt::format(" {} {}", fs::file_size(program, error),
                              fs::last_write_time(program, error).time_since_epoch().count());
}

std::string machine_text() {
    return fmt::format("{}, {} processors, {}", machine_info().cpu, usable_cpus(),
                       format_bytes(memory_info().total));
}

ab::Shard shard_of(const RunArguments &a) {
    return ab::choose_shard({a.shard, a.shards},
                            [](const char *name) { return std::getenv(name); });
}

// Checks whether the file would get results of two machines. If the results have speeds, throws an
// error. Otherwise prints a warning. Returns the text of Header::machine.
std::string machine_of_run(const RunArguments &a, const ab::Experiment &experiment,
                           const ab::Shard &shard) {
    const std::string now = machine_text();
    const fs::path file = experiment.config.output / shard.file_name();
    std::error_code error;
    if (a.again || !fs::exists(file, error)) return now;
    const std::string before = ab::read_header(file).machine;
    if (ab::processor_of(before) == ab::processor_of(now)) return now;
    const bool has_speeds =
        shard.index == 1 &&
        std::any_of(experiment.config.tasks.begin(), experiment.config.tasks.end(),
                    [](const ab::Task &task) { return task.kind == ab::TaskKind::speed; });
    if (has_speeds)
        throw_error(ErrorKind::input,
                    "{}: the experiment began on another machine ({}; this is {}), and speeds of "
                    "two machines cannot be compared; continue on the first machine, or start "
                    "again with --no-resume",
                    printable(file.string(), 300), printable(before, 200), printable(now, 200));
    console().message("keel: warning: ",
                      fmt::format("{} began on another machine ({}; this is {}): numbers may be "
                                  "rounded differently",
                                  printable(file.string(), 300), printable(before, 200),
                                  printable(now, 200)));
    return ab::joined_machines(before, now);
}

// A word as a POSIX shell reads it.
std::string shell_word(const std::string &word) {
    const bool is_plain =
        !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
            return std::isalnum(c) != 0 ||
                   std::string_view("/._-=:,+@%").find(static_cast<char>(c)) !=
                       std::string_view::npos;
        });
    if (is_plain) return word;
    std::string out = "'";
    for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
}

// The command that runs this experiment and writes to this folder. The command does not name a
// shard.
std::string command_text(const RunArguments &a) {
    std::string out = "keel ab run " + shell_word(absolute_path(a.file).string());
    const auto add = [&](const std::string &option, const std::string &value) {
        out += " " + option + " " + shell_word(value);
    };
    if (!a.output.empty()) add("--output", absolute_path(a.output).string());
    for (const std::string &set : a.sets) add("--set", set);
    if (a.items > 0) add("--items", fmt::format("{}", a.items));
    if (a.batch > 0) add("--batch", fmt::format("{}", a.batch));
    if (!a.plan.empty()) add("--plan", absolute_path(a.plan).string());
    if (a.changed_plan) out += " --changed-plan";
    return out;
}

// Shows progress. On a terminal the class draws a bar. Otherwise the class prints a line after each
// tenth of the work.
class Steps {
  public:
    explicit Steps(bool quiet) : quiet_(quiet) {}

    // Of the `done` items, an earlier process finished `found`.
    void operator()(uint64_t done, uint64_t total, uint64_t found) {
        check_interrupt();
        console().progress("items", done, total, Console::Unit::items, found);
        if (quiet_ || console().err_is_terminal() || total == 0) return;
        const uint64_t tenth = done * 10 / total;
        if (tenth == last_ || done >= total || done <= found) return;
        last_ = tenth;
        const double passed =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
        console().message("keel: ",
                          fmt::format("{} of {}, about {} left", done, total,
                                      duration_text(passed * static_cast<double>(total - done) /
                                                    static_cast<double>(done - found))));
    }

  private:
    bool quiet_;
    uint64_t last_ = 0;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void print_results(const RunArguments &a, const fs::path &folder) {
    const std::string text = ab::write_report(folder);
    if (!a.json) {
        console().out(text);
        return;
    }
    std::ifstream in(folder / "summary.json");
    console().out(std::string(std::istreambuf_iterator<char>(in), {}));
}

// The power of the planned contrasts with the documents of the file, from the pilot in `folder`.
std::optional<ab::PowerTable> power_of_dry_run(const ab::Experiment &experiment,
                                               const std::string &folder) {
    if (folder.empty()) return std::nullopt;
    ab::Names names;
    const ab::Table table = ab::load_table(folder, names);
    return ab::power_of_experiment(ab::summarize(table, names), experiment,
                                   ab::freeze_plan(experiment).record, {});
}

int run_ab(const RunArguments &a, const Program &program) {
    pipeline::require_path(a.file, "an experiment (.yaml)");
    ab::Config config = ab::load_config(a.file);
    if (!a.output.empty()) config.output = absolute_path(a.output);
    if (a.batch > 0) config.batch = a.batch;
    const ab::Shard shard = shard_of(a);
    const auto host = std::make_shared<HostServices>();
    const InterruptGuard guard(*host);
    ab::ResolveOptions resolve;
    resolve.sets = a.sets;
    resolve.circumstances = circumstances();
    resolve.host = host;
    const ab::Experiment experiment = ab::resolve_experiment(std::move(config), resolve);
    const std::optional<ab::PlanRecord> plan = plan_of_run(experiment, a.plan, a.changed_plan);
    if (!a.again) check_plan_of_folder(experiment, shard, plan);

    ab::RunOptions options;
    options.shard = shard;
    options.items = a.items;
    options.resume = !a.again;
    options.cost_only = a.dry_run;
    options.host = host;
    options.loading = [](const char *stage, uint64_t done, uint64_t total) {
        check_interrupt();
        if (std::string_view(stage) == "loading")
            console().progress(stage, done, total, Console::Unit::bytes);
    };
    const auto steps = std::make_shared<Steps>(program.quiet);
    options.steps = [steps](uint64_t done, uint64_t total, uint64_t found) {
        (*steps)(done, total, found);
    };
    if (!program.quiet)
        options.say = [](const std::string &line) { console().message("keel: ", line); };
    options.header.version = KEEL_VERSION;
    options.header.commit = build_commit();
    options.header.date = utc_text(std::chrono::system_clock::now());
    options.header.machine = machine_of_run(a, experiment, shard);
    options.header.command = command_text(a);
    options.header.plan = plan;
    ab::Runner runner(experiment, options);
    console().clear_progress();
    if (a.dry_run) {
        const ab::Cost cost = runner.cost();
        const auto power = power_of_dry_run(experiment, a.pilot);
        if (a.json) {
            nlohmann::ordered_json j = ab::cost_json(experiment, cost);
            if (power) j["power"] = ab::power_json(*power);
            print_json(j);
            return 0;
        }
        console().out(ab::cost_text(experiment, cost));
        if (power) console().out("\n" + ab::power_text(*power));
        if (plan && !power)
            console().out("power: not known without a pilot; give earlier results with --pilot\n");
        return 0;
    }
    const fs::path folder = experiment.config.output;
    runner.run();
    console().clear_progress();
    if (shard.count == 1) {
        print_results(a, folder);
        return 0;
    }
    const std::string key =
        fmt::format("{} items {} {}", experiment.hash, a.items, ab::plan_name(options.header));
    const bool last =
        ab::finish_shard(folder, shard, key, [&](const std::vector<fs::path> &shards) {
            // While this process holds the lock, no process can run the whole experiment.
            const ab::FileLock lock(folder / ".results.jsonl.lock", false);
            // Replaces an old result, because an old result can come from fewer shards or fewer
            // items.
            ab::merge_shards(shards, folder, true);
            print_results(a, folder);
        });
    if (!last && !program.quiet)
        console().message("keel: ", fmt::format("shard {} of {} is done; the last shard merges all",
                                                shard.index, shard.count));
    return 0;
}

} // namespace

void add_ab(Command &keel, Program &program) {
    Command &ab = keel.add_command(
        "ab", "Compare policies and caches in an experiment with a statistical verdict");
    Command &command = add_command(
        ab, program, "run", "Run an experiment; 'keel ab FILE' is short for this",
        {{"keel ab configs/ab/quick.yaml --dry-run", "prints the grid and the estimated time"},
         {"keel ab configs/ab/policies.yaml", "runs it, or continues a run that was stopped"},
         {"keel ab my.yaml --batch 8", "decodes eight documents of an arm together"},
         {"keel ab my.yaml --shard 1/2",
          "runs half of the documents; the last shard merges all results"},
         {"mpirun -n 2 keel ab my.yaml", "runs two shards in two processes"}});
    ab.standard = &command;
    auto a = std::make_shared<RunArguments>();
    command.argument("FILE", a->file,
                     "The experiment, a YAML file; see docs/reference/experiments.md");
    command.option("-o,--output DIR", a->output,
                   "Folder for the results; replaces 'output' of the file");
    command.option("--set KEY=VALUE", a->sets,
                   "Change a key of the base pipeline; an arm's own keys win; can be repeated; see "
                   "docs/reference/config.md");
    command.option("--items N", a->items, "Use at most N documents of each task")
        .range(1, 1'000'000);
    command
        .option("--batch N", a->batch,
                "Decode N documents of an arm together; replaces 'batch' of the file")
        .range(1, Pipeline::most_batch);
    command.option("--shard I/N", a->shard,
                   "Run only part I of N of the documents; mpirun and Slurm arrays set I/N "
                   "automatically");
    command
        .option("--shards N", a->shards,
                "Number of shards in a Kubernetes indexed job or a Slurm array, also KEEL_SHARDS")
        .range(1, 10'000);
    command.option("--plan PLAN", a->plan,
                   "Check the experiment against a plan of 'keel ab plan' before anything runs");
    command
        .flag("--changed-plan", a->changed_plan,
              "Run although the experiment differs from the plan; all results are exploratory")
        .needs({"--plan"});
    command.flag("--resume", a->again,
                 "Keep the existing results and run only the rest (the default)", false);
    command.flag("--no-resume", a->again, "Delete the existing results and run everything again")
        .excludes({"--resume"});
    command.flag("--dry-run", a->dry_run,
                 "Only check everything, print the grid and estimate the time");
    command
        .option("--pilot RESULTS", a->pilot,
                "With --dry-run: print the power of the planned contrasts, from earlier results")
        .needs({"--dry-run"});
    command.flag("--json", a->json, "Print the summary (or the estimate) as JSON");
    command.action = [a, &program] { return run_ab(*a, program); };
    add_ab_plan(ab, program);
    add_ab_commands(ab, program);
}

} // namespace keel::cli
