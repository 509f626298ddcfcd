// Measures the CPU plugin's attention through the C table, at the shape of TinyLlama-1.1B (32 heads
// of 64, 4 KV heads) and at that of a model without groups. Decode: GB/s of cache. Prefill:
// GFLOP/s. The caches of several layers are used alternately, as in a whole model. Example:
//   cpu_attention_bench --threads=2 --isa=vnni --benchmark_filter='decode.*f16'
#include "cpu_rig.hpp"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>

namespace {

using namespace keel::bench;

int64_t threads = 0; // --threads=N; with 1, the CPU column is right even on a busy machine
const char *wanted_isa = "auto"; // --isa=NAME; --exact adds `compute: exact`
const char *compute = "fast";

constexpr int64_t head_dim = 64;

struct Shape {
    const char *name;
    int64_t heads, kv_heads;
};
constexpr Shape shapes[] = {{"tinyllama", 32, 4}, {"llama32_1b", 32, 8}, {"no_groups", 16, 16}};

// Queries and the caches of some layers.
struct Setup {
    Rig rig;
    std::vector<Layer> layers;
    keel_tensor q{}, scores_out{};
    keel_scores scores{};
    std::string kernel;
    keel_plan *plan = nullptr;
    uint64_t features = KEEL_ATTENTION_CAUSAL;

    Setup(const Shape &s, keel_dtype dtype, int64_t m, int64_t length, uint32_t window,
          const char *isa)
        : rig(threads, isa, compute) {
        q = rig.filled({m, s.heads, head_dim});
        scores_out = rig.tensor(KEEL_DTYPE_F32, {s.kv_heads, length});
        scores = {KEEL_HEADER(keel_scores), &scores_out,      window,
                  KEEL_REDUCE_SUM,          KEEL_REDUCE_MEAN, 0};
        if (window != 0) features |= KEEL_ATTENTION_SCORES;
        layers.resize(m > 1 ? 2 : 22);
        for (Layer &layer : layers) rig.make_layer(layer, s.kv_heads, head_dim, dtype, length);
        keel_attention_args args = arguments(0);
        kernel = rig.plan(KEEL_OP_ATTENTION, args);
        plan = args.plan;
    }

    keel_attention_args arguments(size_t i) {
        keel_attention_args a{};
        a.h = KEEL_HEADER(keel_attention_args);
        a.features = features;
        a.plan = plan;
        a.q = &q;
        a.kv = &layers[i % layers.size()].view;
        a.out = &q; // the output is a mean of the values, so it stays in their range
        a.scores = &scores;
        a.scale = 0.125F;
        return a;
    }
};

void attention(benchmark::State &state, const Shape &s, keel_dtype dtype, int64_t m, int64_t length,
               uint32_t window, const char *isa) {
    try {
        Setup setup(s, dtype, m, length, window, isa);
        size_t i = 0;
        for (auto _ : state) {
            const keel_attention_args a = setup.arguments(i++);
            check(backend().attention(setup.rig.ctx, &a), "attention");
        }
        using benchmark::Counter;
        const double runs = static_cast<double>(state.iterations());
        const double bytes = 2.0 * static_cast<double>(keel_dtype_row_bytes(dtype, head_dim)) *
                             static_cast<double>(length * s.kv_heads);
        // the pairs of query and key that see each other; each needs two products of head_dim
        const double pairs =
            static_cast<double>(m) * (static_cast<double>(length) - static_cast<double>(m - 1) / 2);
        state.counters["GB/s"] = Counter(1e-9 * bytes * runs, Counter::kIsRate);
        state.counters["GFLOP/s"] = Counter(
            4e-9 * pairs * static_cast<double>(s.heads * head_dim) * runs, Counter::kIsRate);
        state.SetLabel(setup.kernel);
    } catch (const std::exception &e) {
        state.SkipWithError(e.what());
    }
}

void add(const Shape &s, keel_dtype dtype, int64_t m, int64_t length, uint32_t window,
         const char *isa) {
    const std::string name = std::string(m == 1 ? "decode/" : "prefill/") + s.name + "/" +
                             keel_dtype_name(dtype) + "/" + isa + "/m:" + std::to_string(m) +
                             "/length:" + std::to_string(length) +
                             (window != 0 ? "/scores:" + std::to_string(window) : "");
    benchmark::RegisterBenchmark(
        name.c_str(),
        [=, &s](benchmark::State &state) { attention(state, s, dtype, m, length, window, isa); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
}

// Measures the scores that a policy needs when it evicts: the last queries over the kept slots.
void scores(benchmark::State &state, const Shape &s, keel_dtype dtype, int64_t m, int64_t length) {
    try {
        Setup setup(s, dtype, m, length, 0, wanted_isa);
        size_t i = 0;
        keel_attention_scores_args a{};
        a.h = KEEL_HEADER(keel_attention_scores_args);
        a.features = KEEL_SCORES_CAUSAL;
        a.q = &setup.q;
        a.scores = &setup.scores;
        a.scale = 0.125F;
        a.kv = &setup.layers[0].view;
        const std::string kernel = setup.rig.plan(KEEL_OP_ATTENTION_SCORES, a);
        for (auto _ : state) {
            a.kv = &setup.layers[i++ % setup.layers.size()].view;
            check(backend().attention_scores(setup.rig.ctx, &a), "attention_scores");
        }
        // the pairs of query and key that see each other; each needs one product of head_dim
        const double pairs =
            static_cast<double>(m) * (static_cast<double>(length) - static_cast<double>(m - 1) / 2);
        state.counters["GFLOP/s"] =
            benchmark::Counter(2e-9 * pairs * static_cast<double>(s.heads * head_dim) *
                                   static_cast<double>(state.iterations()),
                               benchmark::Counter::kIsRate);
        state.SetLabel(kernel);
    } catch (const std::exception &e) {
        state.SkipWithError(e.what());
    }
}

void add_scores(const Shape &s, keel_dtype dtype, int64_t m, int64_t length) {
    const std::string name = std::string("scores/") + s.name + "/" + keel_dtype_name(dtype) + "/" +
                             wanted_isa + "/m:" + std::to_string(m) +
                             "/length:" + std::to_string(length);
    benchmark::RegisterBenchmark(
        name.c_str(), [=, &s](benchmark::State &state) { scores(state, s, dtype, m, length); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
}

} // namespace

int main(int argc, char **argv) {
    int kept = 1;
    for (int i = 1; i < argc; ++i) {
        if (std::strncmp(argv[i], "--threads=", 10) == 0)
            threads = std::atoi(argv[i] + 10);
        else if (std::strncmp(argv[i], "--isa=", 6) == 0)
            wanted_isa = argv[i] + 6;
        else if (std::strcmp(argv[i], "--exact") == 0)
            compute = "exact";
        else
            argv[kept++] = argv[i];
    }
    argc = kept;
    for (const Shape &s : shapes)
        for (const keel_dtype dtype :
             {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0}) {
            for (const int64_t length : {64, 512, 4096}) add(s, dtype, 1, length, 0, wanted_isa);
            for (const int64_t m : {4, 64, 512, 2048})
                add(s, dtype, m, std::max<int64_t>(m, 512), 0, wanted_isa);
        }
    for (const char *isa : {"scalar", "avx2", "avx512"})
        add(shapes[0], KEEL_DTYPE_F16, 512, 512, 0, isa);
    add(shapes[0], KEEL_DTYPE_F16, 1, 2048, 1, wanted_isa);
    for (const int64_t length : {2048, 8192}) {
        for (const uint32_t window : {0U, 32U, 512U})
            add(shapes[0], KEEL_DTYPE_F16, 512, length, window, wanted_isa);
        for (const int64_t m : {32, 512}) add_scores(shapes[0], KEEL_DTYPE_F16, m, length);
    }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
