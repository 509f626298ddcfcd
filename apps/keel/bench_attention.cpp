#include "bench_attention.hpp"

#include "console.hpp"
#include "device_arguments.hpp"
#include "interrupt.hpp"

#include "base/error.hpp"
#include "eval/bench/attention/attention_report.hpp"
#include "run/bind_plugin.hpp"

#include <nlohmann/json.hpp>

namespace keel::cli {
namespace {

struct AttentionArguments {
    DeviceArguments device;
    AttentionBenchOptions bench;
    std::vector<std::string> dtypes = {"f32"};
    std::string mask = "both", pass = "both";
    int64_t kv_heads = 0; // 0: as many as heads
    bool json = false;
};

std::vector<keel_dtype> dtypes_of(const std::vector<std::string> &names) {
    constexpr keel_dtype allowed[] = {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16};
    std::vector<keel_dtype> dtypes;
    for (const std::string &name : names) {
        for (const keel_dtype dtype : allowed)
            if (name == keel_dtype_name(dtype)) dtypes.push_back(dtype);
    }
    return dtypes;
}

int run_bench_attention(const AttentionArguments &a) {
    AttentionBenchOptions options = a.bench;
    options.dtypes = dtypes_of(a.dtypes);
    if (a.mask != "both") options.causal = {a.mask == "causal"};
    options.backward = a.pass == "both";
    options.kv_heads = a.kv_heads == 0 ? options.heads : a.kv_heads;
    const auto host = std::make_shared<HostServices>();
    const InterruptGuard guard(*host);
    options.progress = [&](uint64_t done, uint64_t total) {
        check_interrupt();
        console().progress("attention", done, total, Console::Unit::items);
    };
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    bool found = false;
    for (const std::string &backend : a.device.backends) {
        const pipeline::BackendSection section = a.device.section(backend);
        const AttentionBenchReport report =
            bench_attention([&] { return open_device(section, host); }, options);
        console().clear_progress();
        found = found || report.without.empty();
        all.push_back(attention_json(report));
        if (!a.json) console().out(attention_table(report));
    }
    if (a.json) print_json({{"version", KEEL_VERSION}, {"backends", std::move(all)}});
    return found ? 0 : 1;
}

} // namespace

void add_bench_attention(Command &bench, Program &program) {
    Command &command = add_command(
        bench, program, "attention",
        "Measure a backend's attention over plain tensors, forward and backward",
        {{"keel bench attention", "lengths 512 to 4096, head_dim 64 and 128, causal and not"},
         {"keel bench attention --length 2048 --head-dim 128 --dtype bf16 --mask causal", ""},
         {"keel bench attention --heads 32 --kv-heads 8 --pass forward --json", ""},
         {"keel bench attention --backend cpu --backend ./my_backend.so", "one after the other"}});
    auto a = std::make_shared<AttentionArguments>();
    command
        .option("--length N,N", a->bench.lengths,
                "Numbers of queries, which are also the numbers of keys (default: "
                "512,1024,2048,4096)")
        .range(1, 65536);
    command.option("--head-dim N,N", a->bench.head_dims, "Sizes of a head (default: 64,128)")
        .range(16, 256);
    command.option("--heads N", a->bench.heads, "Number of query heads")
        .range(1, 1024)
        .shows_default();
    command
        .option("--kv-heads N", a->kv_heads,
                "Number of key/value heads, a divisor of --heads (default: as many as --heads)")
        .range(1, 1024);
    command.option("--batch N", a->bench.batch, "Number of sequences")
        .range(1, 1024)
        .shows_default();
    command.option("--dtype TYPE", a->dtypes, "Type of the tensors; can be repeated (default: f32)")
        .one_of({"f32", "f16", "bf16"});
    command.option("--mask WHICH", a->mask, "Which queries see which keys")
        .one_of({"causal", "full", "both"})
        .shows_default();
    command.option("--pass WHICH", a->pass, "Measure only the forward pass, or both passes")
        .one_of({"forward", "both"})
        .shows_default();
    command
        .option("-r,--repeat N", a->bench.repeat,
                "Run N rounds; each round measures everything once")
        .range(1, 1000)
        .shows_default();
    a->device.add_to(command, true);
    command.flag("--json", a->json, "Print one JSON object");
    command.action = [a] { return run_bench_attention(*a); };
}

} // namespace keel::cli
