#include "bench_matrix.hpp"

#include "build_info.hpp"
#include "child_process.hpp"
#include "console.hpp"
#include "interrupt.hpp"
#include "own_page.hpp"
#include "pipeline_arguments.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "eval/bench/matrix/matrix.hpp"
#include "eval/bench/matrix/page.hpp"
#include "platform/clock.hpp"
#include "platform/machine.hpp"
#include "platform/new_file.hpp"
#include "platform/paths.hpp"
#include "run/pipeline.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

namespace keel::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct MatrixArguments {
    std::string file, output = "bench-results";
    bool again = false, dry_run = false;
};

struct ReportArguments {
    std::vector<std::string> inputs;
    std::string output;
    std::string title = "keel bench";
};

// Size and time of a file, or of the files in a folder: changed weights are another model, though it lies in the same place.
std::string stamp_of(const fs::path &path) {
    std::error_code error;
    std::vector<fs::path> files{path};
    if (fs::is_directory(path, error)) {
        files.clear();
        for (const auto &entry : fs::directory_iterator(path, error)) {
            if (entry.is_regular_file(error)) files.push_back(entry.path());
        }
        std::sort(files.begin(), files.end());
    }
    std::string stamp;
    for (const fs::path &file : files) {
        const auto size = fs::file_size(file, error);
        const auto time = fs::last_write_time(file, error).time_since_epoch().count();
        stamp += fmt::format("\n{} {} {}", file.filename().string(), size, time);
    }
    return stamp;
}

// Of a build that no commit names: the program's file and the plugins beside it, which a rebuild changes.
std::string build_stamp() {
    const std::string commit = build_commit();
    if (!commit.empty() && !commit.ends_with("-dirty")) return {};
    const fs::path program = executable_path();
    return stamp_of(program) + stamp_of(program.parent_path().parent_path() / "lib" / "keel" / "plugins");
}

// A result of an earlier matrix with this key.
bool is_done(const fs::path &file, const std::string &key) {
    std::error_code error;
    if (!fs::is_regular_file(file, error)) return false;
    constexpr uint64_t largest = uint64_t{8} << 20;
    const Json json = Json::parse(read_text_file(file, largest), nullptr, false);
    return json.is_object() && json.value("key", Json()) == key && json.contains("result");
}

// Every combination has to make sense before the first one takes its hour. Weights are not read.
void check_runs(const BenchMatrix &matrix, const std::vector<MatrixRun> &runs) {
    // The longest sequence that a pipeline takes in; none where its policy makes room.
    std::map<std::pair<fs::path, std::vector<std::string>>, std::optional<int64_t>> contexts;
    for (const MatrixRun &run : runs) {
        check_interrupt();
        const auto key = std::pair(run.path, run.sets);
        std::string too_long;
        try {
            if (!contexts.contains(key)) {
                require_path(run.path, "a model");
                PipelineOptions options;
                options.check_only = true;
                options.need_tokenizer = false;
                options.batch = static_cast<uint32_t>(
                    *std::max_element(matrix.sequences.begin(), matrix.sequences.end()));
                const Pipeline pipeline(load_target(run.path.string(), run.sets), options);
                contexts[key] =
                    pipeline.cache_plan().keeps_all() ? std::optional(pipeline.context()) : std::nullopt;
            }
            const std::optional<int64_t> context = contexts[key];
            if (context && run.length + matrix.decode > *context) {
                too_long =
                    fmt::format("{}: {}: {} tokens and {} to decode do not fit model.context = {}",
                                to_string(run.length_where), run.name(), run.length, matrix.decode, *context);
            }
        } catch (const Error &e) {
            throw Error(e.kind(), run.fault(e.what()));
        }
        if (!too_long.empty()) throw Error(ErrorKind::input, too_long);
    }
}

std::vector<std::string> arguments_of(const MatrixRun &run, const BenchMatrix &matrix) {
    std::vector<std::string> out{"bench", run.path.string()};
    for (const std::string &set : run.sets) {
        out.emplace_back("--set");
        out.push_back(set);
    }
    const std::string length = std::to_string(run.length);
    for (const std::string &word :
         {std::string("--prefill"), length, std::string("--depth"), length, std::string("--decode"),
          std::to_string(matrix.decode), std::string("--repeat"), std::to_string(matrix.repeat)})
        out.push_back(word);
    if (matrix.sequences != std::vector<int64_t>{1}) {
        out.emplace_back("--batch");
        out.push_back(fmt::format("{}", fmt::join(matrix.sequences, ",")));
    }
    if (matrix.probe_mib) {
        out.emplace_back("--probe-mib");
        out.push_back(std::to_string(*matrix.probe_mib));
    }
    out.emplace_back("--no-ops");
    out.emplace_back("--json");
    out.emplace_back("-q");
    return out;
}

Json run_json(const MatrixRun &run, const std::string &key, const std::vector<std::string> &arguments,
              Json result) {
    const std::string commit = build_commit();
    Json command = Json::array({"keel"});
    for (const std::string &argument : arguments)
        command.push_back(argument);
    Json axes = {
        {"model", run.model}, {"backend", run.backend}, {"kv", run.cache}, {"policy", run.policy}};
    if (!run.sync.empty()) axes["sync"] = run.sync;
    axes["length"] = run.length;
    return {{"format", "keel-bench-run/1"},
            {"key", key},
            {"name", run.name()},
            {"axes", std::move(axes)},
            {"version", KEEL_VERSION},
            {"commit", commit.empty() ? Json(nullptr) : Json(commit)},
            {"date", utc_text(std::chrono::system_clock::now())},
            {"command", std::move(command)},
            {"result", std::move(result)}};
}

int run_matrix(const MatrixArguments &a, const Program &program) {
    require_path(a.file, "a matrix (.yaml)");
    const BenchMatrix matrix = load_matrix(a.file, "cpu"); // as for a model without a pipeline
    const std::vector<MatrixRun> runs = matrix_runs(matrix);
    HostServices host; // for Ctrl-C alone: each run is a process of its own
    const InterruptGuard guard(host);
    check_runs(matrix, runs);
    const std::string circumstances =
        fmt::format("{} {} {}", KEEL_VERSION, build_commit(), machine_info().cpu) + build_stamp();
    const fs::path folder(a.output);
    if (!a.dry_run) {
        std::error_code error;
        fs::create_directories(folder, error);
        if (error || !fs::is_directory(folder, error))
            throw_error(ErrorKind::usage, "{}: cannot be made a folder", a.output);
    }
    size_t number = 0, done = 0, skipped = 0, failed = 0;
    for (const MatrixRun &run : runs) {
        check_interrupt();
        ++number;
        const std::string key = run.key(matrix, circumstances + stamp_of(run.path));
        const fs::path file = folder / run.file_name(key);
        const auto say = [&](const std::string &what) {
            if (!program.quiet)
                console().message("keel: ",
                                  fmt::format("{} of {}: {}{}", number, runs.size(), run.name(), what));
        };
        const bool is_there = !a.again && is_done(file, key);
        if (a.dry_run) {
            console().out(fmt::format("{}{}\n", run.name(), is_there ? " (done)" : ""));
            continue;
        }
        if (is_there) {
            ++skipped;
            say(": done before");
            continue;
        }
        say("");
        const std::vector<std::string> arguments = arguments_of(run, matrix);
        const ChildResult child = run_child(executable_path(), arguments);
        if (child.code == interrupted_code) throw Interrupted{};
        Json result = child.code == 0 ? Json::parse(child.out, nullptr, false) : Json();
        if (!result.is_object()) {
            ++failed;
            console().message(
                "keel: warning: ",
                fmt::format("{}: failed with exit code {}; the others go on", run.name(), child.code), 33);
            continue;
        }
        ++done;
        write_whole_file(file, run_json(run, key, arguments, std::move(result))
                                       .dump(2, ' ', false, Json::error_handler_t::replace) +
                                   "\n");
    }
    if (a.dry_run) return 0;
    console().out(fmt::format("{} measured, {} done before, {} failed; results are in {}\n", done, skipped,
                              failed, folder.string()));
    if (!program.quiet && failed == 0)
        console().message(
            "keel: ",
            fmt::format("a page with all of them: keel bench report {0} -o report.html", folder.string()));
    return failed == 0 ? 0 : 1;
}

int run_report(const ReportArguments &a, const Program &program) {
    std::vector<fs::path> paths;
    for (const std::string &input : a.inputs) {
        require_path(input, "a folder of results, or a result");
        paths.emplace_back(input);
    }
    const fs::path output(a.output);
    require_own_page(a.output, "-o", bench_html_mark, "keel bench report");
    const std::vector<BenchLine> lines = load_bench_lines(paths);
    write_whole_file(output, bench_html(lines, a.title));
    if (!program.quiet)
        console().message("keel: ",
                          fmt::format("wrote {}: {} lines; open it in a browser", a.output, lines.size()));
    return 0;
}

} // namespace

void add_bench_matrix(Command &bench, Program &program) {
    Command &command =
        add_command(bench, program, "matrix",
                    "Measure all combinations of models, backends, KV types, policies, sync "
                    "strategies and lengths",
                    {{"keel bench matrix my-matrix.yaml -o results",
                      "one file per run; what is there already is skipped"},
                     {"keel bench matrix my-matrix.yaml --dry-run", "list the runs"}});
    auto a = std::make_shared<MatrixArguments>();
    command.argument("FILE", a->file, "The matrix, a YAML file; see docs/bench.md");
    command.option("-o,--output DIR", a->output, "Folder for the results; it is made")
        .shows_default();
    command.flag("--again", a->again, "Measure again what is there already");
    command.flag("--dry-run", a->dry_run, "Check everything, list the runs, measure nothing");
    command.action = [a, &program] { return run_matrix(*a, program); };
}

void add_bench_report(Command &bench, Program &program) {
    Command &command = add_command(bench, program, "report",
                                   "Write one page with tables and charts of many results",
                                   {{"keel bench report results -o report.html", ""},
                                    {"keel bench report before after one.json -o report.html",
                                     "folders of 'bench matrix', files of 'bench --json'"}});
    auto a = std::make_shared<ReportArguments>();
    command.argument("RESULTS", a->inputs, "Folders or files with results").many();
    command.option("-o,--output FILE", a->output, "The page").required();
    command.option("--title TEXT", a->title, "Its heading");
    command.action = [a, &program] { return run_report(*a, program); };
}

} // namespace keel::cli
