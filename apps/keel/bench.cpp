#include "bench_matrix.hpp"
#include "build_info.hpp"
#include "console.hpp"
#include "interrupt.hpp"
#include "pipeline_arguments.hpp"
#include "trace_option.hpp"

#include "base/log.hpp"
#include "eval/bench/report.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

struct BenchArguments {
    PipelineArguments pipeline;
    std::vector<int64_t> prefill, depths, sequences = {1};
    bool has_prefill = false, has_depths = false;
    BenchOptions bench;
    TraceOption trace;
    int64_t probe_mib = -1; // -1: as large as it should be
    bool json = false;
};

void show_progress(const char *stage, uint64_t done, uint64_t total) {
    check_interrupt();
    const bool loading = std::string_view(stage) == "loading";
    console().progress(stage, done, total, loading ? Console::Unit::bytes : Console::Unit::tokens);
}

// What is asked for twice is measured once.
void drop_repeats(std::vector<int64_t> &numbers) {
    std::vector<int64_t> kept;
    for (const int64_t n : numbers)
        if (std::find(kept.begin(), kept.end(), n) == kept.end()) kept.push_back(n);
    numbers = std::move(kept);
}

int run_bench_command(const BenchArguments &a) {
    pipeline::PipelineConfig config = a.pipeline.load();
    if (*config.policy.log) { // random ids evicted again and again are nobody's log
        config.policy.log.value.reset();
        log().info("policy.log: bench writes none");
    }
    a.trace.open();
    PipelineOptions options;
    options.host = std::make_shared<HostServices>();
    options.progress = show_progress;
    options.need_tokenizer = false; // random ids will do
    options.batch = static_cast<uint32_t>(*std::max_element(a.sequences.begin(), a.sequences.end()));
    const InterruptGuard guard(*options.host);
    Pipeline pipeline(config, options);
    console().clear_progress();
    a.trace.watch(pipeline);

    BenchOptions bench = a.bench;
    bench.progress = show_progress;
    if (a.trace.is_given() && bench.ops) {
        bench.ops = false;
        log().info("--trace shows each op: the tables of ops are left out");
    }
    bench.prefill = a.has_prefill ? a.prefill : default_prefill(pipeline.context());
    bench.depths = a.has_depths ? a.depths : default_depths(pipeline.context(), bench.decode);
    std::erase(bench.prefill, 0); // `--prefill 0`: none
    bench.sequences = a.sequences;
    for (auto *numbers : {&bench.prefill, &bench.depths, &bench.sequences})
        drop_repeats(*numbers);
    if (a.probe_mib >= 0) bench.probe_bytes = static_cast<uint64_t>(a.probe_mib) << 20;
    BenchReport report = run_bench(pipeline, bench);
    report.commit = build_commit();
    console().clear_progress();
    if (a.json) {
        print_json(bench_json(report, KEEL_VERSION));
    } else {
        console().out(bench_table(report, KEEL_VERSION));
    }
    return 0;
}

} // namespace

void add_bench(CLI::App &app, Program &program) {
    CLI::App &command = add_command(
        app, program, "bench",
        "Measure prefill and decode, beside what this machine's memory and processor can do",
        {{"keel bench models/tiny", ""},
         {"keel bench my.yaml --prefill 128,512,2048 --depth 0,2048 --decode 64 --repeat 5", ""},
         {"keel bench models/tiny --weights q4_0 --threads 1 --prefill 0", "decode alone"},
         {"keel bench my.yaml --prefill 0 --batch 1,2,4,8", "several sequences in one step"},
         {"keel bench my.yaml --json > bench.json", "with the sample of every repeat; see docs/bench.md"},
         {"keel bench matrix my-matrix.yaml -o results", "many of them; 'keel bench report' shows them"}});
    auto a = std::make_shared<BenchArguments>();
    a->pipeline.add_to(command, program, ShortForms::pipeline);
    command
        .add_option_function<std::vector<int64_t>>(
            "--prefill",
            [a](const std::vector<int64_t> &lengths) {
                a->prefill = lengths;
                a->has_prefill = true;
            },
            "Prompt lengths to measure; 0: none (default: 128,512)")
        ->type_name("N,N")
        ->delimiter(',')
        ->take_all();
    command.add_option("--decode", a->bench.decode, "Tokens to decode at each depth; 0: none")
        ->type_name("N")
        ->capture_default_str();
    command
        .add_option_function<std::vector<int64_t>>(
            "--depth",
            [a](const std::vector<int64_t> &depths) {
                a->depths = depths;
                a->has_depths = true;
            },
            "Tokens that are in the cache when decoding begins (default: 0,512)")
        ->type_name("N,N")
        ->delimiter(',')
        ->take_all();
    command
        .add_option("--batch", a->sequences, "Sequences to decode at once, at each depth (default: 1, alone)")
        ->type_name("N,N")
        ->delimiter(',')
        ->check(CLI::Range(1, static_cast<int>(Pipeline::most_batch)))
        ->take_all();
    command.add_option("-r,--repeat", a->bench.repeat, "How often to measure everything, interleaved")
        ->type_name("N")
        ->capture_default_str();
    command
        .add_option("--probe-mib", a->probe_mib,
                    "Buffer of the memory probe; 0: no probes (default: 1024, or four times the cache)")
        ->type_name("MIB")
        ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
    command.add_flag(
        "--no-ops", [a](std::int64_t) { a->bench.ops = false; },
        "Leave out the two passes that show each op with its GB/s and GFLOP/s");
    a->trace.add_to(command);
    command.add_flag("--json", a->json, "Print one JSON object");
    add_bench_matrix(command, program);
    add_bench_report(command, program);
    // TARGET is needed where none of these is named; their callbacks come before this one.
    command.get_option("TARGET")->required(false);
    command.callback([&command, &program, a] {
        const auto named = command.get_subcommands();
        if (named.empty()) {
            if (a->pipeline.target().empty()) throw CLI::RequiredError("TARGET");
            program.action = [a] { return run_bench_command(*a); };
            return;
        }
        for (const CLI::Option *option : command.get_options()) {
            if (option->count() > 0 && option->get_group() != "Messages")
                throw CLI::ValidationError(option->get_name(), "stands before '" + named.front()->get_name() +
                                                                   "', which does not take it");
        }
    });
}

} // namespace keel::cli
