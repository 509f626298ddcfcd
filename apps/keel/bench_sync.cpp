#include "bench_sync.hpp"

#include "console.hpp"
#include "interrupt.hpp"
#include "own_page.hpp"
#include "pipeline_arguments.hpp"

#include "base/log.hpp"
#include "eval/bench/bench_sync.hpp"
#include "platform/new_file.hpp"

#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

struct SyncArguments {
    PipelineArguments pipeline;
    SyncBenchOptions bench;
    std::string html;
    bool json = false;
};

void show_progress(const char *stage, uint64_t done, uint64_t total) {
    check_interrupt();
    const bool loading = std::string_view(stage) == "loading";
    console().progress(stage, done, total, loading ? Console::Unit::bytes : Console::Unit::items);
}

int run_sync(const SyncArguments &a, const Program &program) {
    if (!a.html.empty()) require_own_page(a.html, "--html", sync_html_mark, "keel bench sync");
    pipeline::PipelineConfig config = a.pipeline.load();
    if (*config.policy.log) { // random ids evicted again and again are nobody's log
        config.policy.log.value.reset();
        log().info("policy.log: bench writes none");
    }
    PipelineOptions options;
    options.host = std::make_shared<HostServices>();
    options.progress = show_progress;
    options.need_tokenizer = false; // random ids will do
    const InterruptGuard guard(*options.host);
    Pipeline pipeline(config, options);
    console().clear_progress();
    SyncBenchOptions bench = a.bench;
    bench.progress = show_progress;
    const SyncReport report = run_sync_bench(pipeline, bench);
    console().clear_progress();
    if (!a.html.empty()) {
        write_whole_file(a.html, sync_html(report, KEEL_VERSION));
        if (!program.quiet)
            console().message("keel: ", fmt::format("wrote {}; open it in a browser", a.html));
    }
    if (a.json) {
        print_json(sync_json(report, KEEL_VERSION));
    } else {
        console().out(sync_table(report, KEEL_VERSION));
    }
    return 0;
}

} // namespace

void add_bench_sync(CLI::App &bench, Program &program) {
    CLI::App &command = add_command(
        bench, program, "sync", "Measure what the sync strategies cost: decoding under each, in turns",
        {{"keel bench sync models/tiny --set backend.plugin=opencl", ""},
         {"keel bench sync my.yaml --ops 1,10,50 --html sync.html", "and draw speed over N"}});
    auto a = std::make_shared<SyncArguments>();
    a->pipeline.add_to(command, program, ShortForms::pipeline);
    command.add_option("--ops", a->bench.ops, "The N of 'batched: N'")
        ->type_name("N,N")
        ->delimiter(',')
        ->take_all()
        ->capture_default_str();
    command.add_option("--decode", a->bench.decode, "Tokens of a run")->type_name("N")->capture_default_str();
    command.add_option("--depth", a->bench.depth, "Tokens that are in the cache before")
        ->type_name("N")
        ->capture_default_str();
    command.add_option("-r,--repeat", a->bench.repeat, "Rounds: every strategy once in each")
        ->type_name("N")
        ->capture_default_str();
    command.add_option("--html", a->html, "Write a page with the curve over N, too")->type_name("OUT");
    command.add_flag("--json", a->json, "Print one JSON object");
    set_action(command, program, [a, &program] { return run_sync(*a, program); });
}

} // namespace keel::cli
