#include "bench_matrix.hpp"

#include "build_info.hpp"
#include "console.hpp"
#include "interrupt.hpp"
#include "own_page.hpp"
#include "pipeline_arguments.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/bench/matrix/measure.hpp"
#include "eval/bench/matrix/page.hpp"
#include "platform/new_file.hpp"
#include "platform/paths.hpp"

#include <system_error>

namespace keel::cli {
namespace {

namespace fs = std::filesystem;

struct MatrixArguments {
    std::string file, output = "bench-results";
    bool again = false, dry_run = false;
};

struct MatrixReportArguments {
    std::vector<std::string> inputs;
    std::string output;
    std::string title = "keel bench";
};

int run_matrix(const MatrixArguments &a, const Program &program) {
    pipeline::require_path(a.file, "a matrix (.yaml)");
    // "cpu" is the default backend for models without a pipeline.
    const BenchMatrix matrix = load_matrix(a.file, "cpu");
    const std::vector<MatrixRun> runs = matrix_runs(matrix);
    HostServices host; // the host only handles Ctrl-C; each run is a separate process
    const InterruptGuard guard(host);
    const auto load = [](const fs::path &model, const std::vector<std::string> &sets) {
        check_interrupt();
        pipeline::require_path(model, "a model");
        return pipeline::config_for_target(model.string(), sets);
    };
    const fs::path folder(a.output);
    const MatrixMeasurement measurement(
        matrix, folder, {executable_path(), KEEL_VERSION, build_commit(), load, interrupted});
    measurement.check(runs);
    if (!a.dry_run) {
        std::error_code error;
        fs::create_directories(folder, error);
        if (error || !fs::is_directory(folder, error))
            throw_error(ErrorKind::usage, "{}: cannot create this folder", a.output);
    }
    size_t number = 0, done = 0, skipped = 0, failed = 0;
    for (const MatrixRun &run : runs) {
        check_interrupt();
        ++number;
        const auto say = [&](const std::string &what) {
            if (!program.quiet)
                console().message(
                    "keel: ", fmt::format("{} of {}: {}{}", number, runs.size(), run.name(), what));
        };
        const bool is_there = !a.again && measurement.is_done(run);
        if (a.dry_run) {
            console().out(fmt::format("{}{}\n", run.name(), is_there ? " (done)" : ""));
            continue;
        }
        if (is_there) {
            ++skipped;
            say(": already measured");
            continue;
        }
        say("");
        const int code = measurement.measure(run);
        if (code == interrupted_code) throw Interrupted{};
        if (code == 0) {
            ++done;
            continue;
        }
        ++failed;
        console().message(
            "keel: warning: ",
            fmt::format("{}: failed with exit code {}; the other runs continue", run.name(), code),
            33);
    }
    if (a.dry_run) return 0;
    console().out(
        fmt::format("{} measured, {} already measured before, {} failed; the results are in {}\n",
                    done, skipped, failed, folder.string()));
    if (!program.quiet && failed == 0)
        console().message(
            "keel: ",
            fmt::format("to see all results on one page: keel bench report {0} -o report.html",
                        folder.string()));
    return failed == 0 ? 0 : 1;
}

int run_report(const MatrixReportArguments &a, const Program &program) {
    std::vector<fs::path> paths;
    for (const std::string &input : a.inputs) {
        pipeline::require_path(input, "a folder with results, or a results file");
        paths.emplace_back(input);
    }
    const fs::path output(a.output);
    require_own_page(a.output, "-o", bench_html_mark, "keel bench report");
    const std::vector<BenchLine> lines = load_bench_lines(paths);
    write_whole_file(output, bench_html(lines, a.title));
    if (!program.quiet)
        console().message("keel: ", fmt::format("wrote {} with {} lines; open it in a browser",
                                                a.output, lines.size()));
    return 0;
}

} // namespace

void add_bench_matrix(Command &bench, Program &program) {
    Command &command =
        add_command(bench, program, "matrix",
                    "Measure all combinations of models, backends, KV types, policies, sync "
                    "strategies and lengths",
                    {{"keel bench matrix my-matrix.yaml -o results",
                      "writes one file for each run; skips runs that have a file"},
                     {"keel bench matrix my-matrix.yaml --dry-run", "only lists the runs"}});
    auto a = std::make_shared<MatrixArguments>();
    command.argument("FILE", a->file, "The matrix, a YAML file; see docs/reference/bench.md");
    command
        .option("-o,--output DIR", a->output,
                "Folder for the results; created if it does not exist")
        .shows_default();
    command.flag("--again", a->again, "Measure all runs, also those that have a result");
    command.flag("--dry-run", a->dry_run, "Only check everything and list the runs");
    command.action = [a, &program] { return run_matrix(*a, program); };
}

void add_bench_report(Command &bench, Program &program) {
    Command &command = add_command(
        bench, program, "report", "Write one HTML page with tables and charts of many results",
        {{"keel bench report results -o report.html", ""},
         {"keel bench report before after one.json -o report.html",
          "reads folders of 'bench matrix' and files of 'bench --json'"}});
    auto a = std::make_shared<MatrixReportArguments>();
    command.argument("RESULTS", a->inputs, "Folders or files with results").many();
    command.option("-o,--output FILE", a->output, "The HTML page to write").required();
    command.option("--title TEXT", a->title, "The heading of the page");
    command.action = [a, &program] { return run_report(*a, program); };
}

} // namespace keel::cli
