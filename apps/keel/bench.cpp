#include "bench_attention.hpp"
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
    std::vector<int64_t> prefill, depths; // if a list is empty, the default lengths are used
    std::vector<int64_t> sequences = {1};
    BenchOptions bench;
    TraceOption trace;
    int64_t probe_mib = -1; // -1: choose the size automatically
    bool json = false;
};

// Removes repeated numbers, so that each number is measured once.
void drop_repeats(std::vector<int64_t> &numbers) {
    std::vector<int64_t> kept;
    for (const int64_t n : numbers)
        if (std::find(kept.begin(), kept.end(), n) == kept.end()) kept.push_back(n);
    numbers = std::move(kept);
}

int run_bench_command(const BenchArguments &a) {
    pipeline::PipelineConfig config = a.pipeline.load();
    if (*config.policy.log) { // The prompt has random ids, and every repeat evicts them again. So a
                              // log of these evictions is useless.
        config.policy.log.value.reset();
        log().info("policy.log is ignored, because 'keel bench' writes no eviction log");
    }
    a.trace.open();
    PipelineOptions options;
    options.host = std::make_shared<HostServices>();
    options.progress = show_progress;
    options.need_tokenizer = false; // the tokenizer is not needed, because the prompt consists of
                                    // random ids
    options.batch =
        static_cast<uint32_t>(*std::max_element(a.sequences.begin(), a.sequences.end()));
    const InterruptGuard guard(*options.host);
    Pipeline pipeline(config, options);
    console().clear_progress();
    a.trace.watch(pipeline);

    BenchOptions bench = a.bench;
    bench.progress = show_progress;
    if (a.trace.is_given() && bench.ops) {
        bench.ops = false;
        log().info("the tables of ops are left out, because --trace shows each op");
    }
    bench.prefill = a.prefill.empty() ? default_prefill(pipeline.context()) : a.prefill;
    bench.depths = a.depths.empty() ? default_depths(pipeline.context(), bench.decode) : a.depths;
    std::erase(bench.prefill, 0); // `--prefill 0` means no prefill
    bench.sequences = a.sequences;
    for (auto *numbers : {&bench.prefill, &bench.depths, &bench.sequences}) drop_repeats(*numbers);
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

void add_bench(Command &keel, Program &program) {
    Command &bench = keel.add_command(
        "bench",
        "Measure the speed of prefill and decode, and compare it with the machine's limits");
    Command &command = add_command(
        bench, program, "run", "Measure one pipeline; 'keel bench TARGET' is short for this",
        {{"keel bench models/tiny", ""},
         {"keel bench my.yaml --prefill 128,512,2048 --depth 0,2048 --decode 64 --repeat 5", ""},
         {"keel bench models/tiny --weights q4_0 --threads 1 --prefill 0", "only decode"},
         {"keel bench my.yaml --prefill 0 --batch 1,2,4,8", "decodes several sequences together"},
         {"keel bench my.yaml --json > bench.json",
          "includes the samples of all repeats; see docs/reference/bench.md"},
         {"keel bench matrix my-matrix.yaml -o results",
          "measures many pipelines; 'keel bench report' shows the results"}});
    bench.standard = &command;
    auto a = std::make_shared<BenchArguments>();
    a->pipeline.add_to(command, ShortForms::pipeline);
    command.option("--prefill N,N", a->prefill,
                   "Lengths of the prompts to measure; 0: none (default: 128,512)");
    command.option("--decode N", a->bench.decode, "Decode N tokens at each depth; 0: none")
        .shows_default();
    command.option("--depth N,N", a->depths,
                   "Depths: numbers of tokens in the cache before the decode (default: 0,512)");
    command
        .option("--batch N,N", a->sequences,
                "Numbers of sequences to decode together, at each depth (default: 1)")
        .range(1, Pipeline::most_batch);
    command
        .option("-r,--repeat N", a->bench.repeat,
                "Run N rounds; each round measures everything once")
        .shows_default();
    command
        .option(
            "--probe-mib MIB", a->probe_mib,
            "Buffer of the memory probe; 0: no probes (default: 1024, or four times the CPU cache)")
        .range(0, 1 << 20);
    command.flag("--no-ops", a->bench.ops,
                 "Do not measure the two passes that show each op with its GB/s and GFLOP/s",
                 false);
    a->trace.add_to(command);
    command.flag("--json", a->json, "Print one JSON object");
    command.action = [a] { return run_bench_command(*a); };
    add_bench_attention(bench, program);
    add_bench_matrix(bench, program);
    add_bench_report(bench, program);
}

} // namespace keel::cli
