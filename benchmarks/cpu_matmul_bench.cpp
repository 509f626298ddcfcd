// Measures the CPU plugin's matmul through the C table, at the shapes of TinyLlama-1.1B. Decode (m
// = 1): GB/s of weights. Prefill (m = 512): GFLOP/s. A plain read of as many bytes is measured too.
// Weights are copied until they no longer fit the caches, as in a whole model. Example:
//   cpu_matmul_bench --threads=2 --benchmark_filter='q4_0.*m:1/'
#include "cpu_rig.hpp"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace {

using namespace keel;
using namespace keel::bench;

int64_t threads = 0; // --threads=N; with 1, the CPU column is right even on a busy machine

const char *prefetch = "auto"; // --prefetch=auto|on|off

// beyond any cache; a small --walk-mib=N measures the kernel on cached data
uint64_t memory_to_walk = 192u << 20;

struct Shape {
    const char *name;
    int64_t n, k;
    int per_token; // how many times a token needs this shape: 22 layers, one head
};
constexpr Shape shapes[] = {{"qkv", 2560, 2048, 22},
                            {"attn_out", 2048, 2048, 22},
                            {"gate_up", 11264, 2048, 22},
                            {"down", 2048, 5632, 22},
                            {"head", 32000, 2048, 1}};

// A context, buffers, and as many copies of one weight as fit `memory_to_walk`.
struct Setup {
    keel_ctx *ctx = nullptr;
    keel_buffer *x = nullptr, *out = nullptr;
    std::vector<keel_weight *> weights;
    std::vector<uint8_t> source;
    uint64_t weight_bytes = 0;
    keel_tensor tx{}, tout{};
    keel_plan *plan = nullptr;
    keel_plan_info info{};

    Setup(const Shape &s, keel_dtype dtype, int64_t m, const char *isa) {
        keel_param words[4] = {};
        words[0] = {KEEL_HEADER(keel_param), "threads", KEEL_PARAM_INT, 0, threads, 0, nullptr};
        words[1] = {KEEL_HEADER(keel_param), "isa", KEEL_PARAM_CHOICE, 0, 0, 0, isa};
        words[2] = {KEEL_HEADER(keel_param), "compute", KEEL_PARAM_CHOICE, 1, 0, 0, "fast"};
        words[3] = {KEEL_HEADER(keel_param), "prefetch", KEEL_PARAM_CHOICE, 0, 0, 0, prefetch};
        const keel_param *params[] = {&words[0], &words[1], &words[2], &words[3]};
        const keel_ctx_desc desc = {KEEL_HEADER(keel_ctx_desc), 0, 4, params};
        check(backend().ctx_create(host(), &desc, &ctx), "ctx_create");
        x = buffer(m * s.k * 4, tx, m, s.k);
        out = buffer(m * s.n * 4, tout, m, s.n);
        std::vector<float> values(static_cast<size_t>(m * s.k));
        std::mt19937 random(1);
        std::normal_distribution<float> normal;
        for (float &v : values) v = normal(random);
        check(backend().buffer_write(ctx, x, 0, values.data(), values.size() * 4), "buffer_write");
        make_weights(s, dtype);
        keel_matmul_args args = arguments(0);
        check(
            backend().op_plan(ctx, KEEL_OP_MATMUL, reinterpret_cast<keel_op_args *>(&args), &plan),
            "op_plan");
        info.h = KEEL_HEADER(keel_plan_info);
        check(backend().plan_info(ctx, plan, &info), "plan_info");
    }
    Setup(const Setup &) = delete;
    ~Setup() {
        backend().plan_destroy(ctx, plan);
        for (keel_weight *w : weights) backend().weight_destroy(ctx, w);
        backend().buffer_destroy(ctx, x);
        backend().buffer_destroy(ctx, out);
        backend().ctx_destroy(ctx);
    }

    keel_buffer *buffer(int64_t bytes, keel_tensor &t, int64_t rows, int64_t cols) {
        keel_buffer *b = nullptr;
        const keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc), static_cast<uint64_t>(bytes),
                                       KEEL_BUFFER_DEVICE, 0, nullptr};
        check(backend().buffer_create(ctx, &desc, &b), "buffer_create");
        t = {KEEL_HEADER(keel_tensor), b, 0, KEEL_DTYPE_F32, 2, {rows, cols}, {cols * 4, 4}};
        return b;
    }

    void make_weights(const Shape &s, keel_dtype dtype) {
        const uint64_t row = keel_dtype_row_bytes(dtype, static_cast<uint64_t>(s.k)),
                       bytes = row * static_cast<uint64_t>(s.n);
        const uint64_t copies = memory_to_walk / bytes + 1;
        source.resize(bytes * copies);
        // Small numbers in every dtype: the 16-bit halves of this byte pattern are small floats.
        for (uint64_t i = 0; i < source.size(); ++i)
            source[i] = i % 2 == 0 ? static_cast<uint8_t>(i * 7) : 0x2c;
        for (uint64_t i = 0; i < copies; ++i) {
            keel_weight_source src = {KEEL_HEADER(keel_weight_source),
                                      source.data(),
                                      source.size(),
                                      i * bytes,
                                      dtype,
                                      0,
                                      s.n,
                                      s.k};
            const keel_weight_source *list[] = {&src};
            const keel_weight_desc desc = {
                KEEL_HEADER(keel_weight_desc), list, 1, KEEL_JOIN_ROWS, KEEL_USE_MATMUL, 512};
            keel_weight *w = nullptr;
            check(backend().weight_prepare(ctx, &desc, &w), "weight_prepare");
            weights.push_back(w);
        }
        keel_weight_info facts{};
        facts.h = KEEL_HEADER(keel_weight_info);
        check(backend().weight_info(ctx, weights[0], &facts), "weight_info");
        weight_bytes = facts.bytes;
    }

    keel_matmul_args arguments(size_t i) {
        keel_matmul_args a{};
        a.h = KEEL_HEADER(keel_matmul_args);
        a.plan = plan;
        a.x = &tx;
        a.weight = weights[i % weights.size()];
        a.out = &tout;
        return a;
    }
};

void matmul(benchmark::State &state, const Shape &s, keel_dtype dtype, int64_t m, const char *isa) {
    try {
        Setup setup(s, dtype, m, isa);
        size_t i = 0;
        for (auto _ : state) {
            const keel_matmul_args a = setup.arguments(i++);
            check(backend().matmul(setup.ctx, &a), "matmul");
        }
        using benchmark::Counter;
        const double runs = static_cast<double>(state.iterations());
        state.counters["GB/s"] =
            Counter(1e-9 * static_cast<double>(setup.weight_bytes) * runs, Counter::kIsRate);
        state.counters["GFLOP/s"] =
            Counter(2e-9 * static_cast<double>(s.n * s.k * m) * runs, Counter::kIsRate);
        state.counters["ms/token"] = // the time that this shape adds to a token
            Counter(1e-3 * runs * static_cast<double>(m) / s.per_token,
                    Counter::kIsRate | Counter::kInvert);
        state.SetLabel(setup.info.kernel);
    } catch (const std::exception &e) {
        state.SkipWithError(e.what());
    }
}

// The limit for comparison: all workers sum the bytes of one large block, in the same process.
void plain_read(benchmark::State &state) {
    std::vector<uint64_t> block((memory_to_walk << 1) / 8, 1);
    struct Job {
        const std::vector<uint64_t> *block;
        uint64_t sums[256];
    } job{&block, {}};
    for (auto _ : state) {
        check(host()->parallel_region(
                  host(), 0,
                  [](void *user, const keel_region *region) {
                      Job &j = *static_cast<Job *>(user);
                      const size_t part = j.block->size() / region->n;
                      const uint64_t *p = j.block->data() + part * region->worker;
                      uint64_t sum[8] = {};
                      for (size_t i = 0; i + 8 <= part; i += 8)
                          for (size_t c = 0; c < 8; ++c) sum[c] += p[i + c];
                      j.sums[region->worker] =
                          sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
                  },
                  &job),
              "parallel_region");
        benchmark::DoNotOptimize(job.sums);
    }
    using benchmark::Counter;
    state.counters["GB/s"] =
        Counter(8e-9 * static_cast<double>(block.size() * state.iterations()), Counter::kIsRate);
}

} // namespace

int main(int argc, char **argv) {
    int kept = 1;
    for (int i = 1; i < argc; ++i) {
        if (std::strncmp(argv[i], "--threads=", 10) == 0)
            threads = std::atoi(argv[i] + 10);
        else if (std::strncmp(argv[i], "--prefetch=", 11) == 0)
            prefetch = argv[i] + 11;
        else if (std::strncmp(argv[i], "--walk-mib=", 11) == 0)
            memory_to_walk = static_cast<uint64_t>(std::atoi(argv[i] + 11)) << 20;
        else
            argv[kept++] = argv[i];
    }
    argc = kept;
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RegisterBenchmark("plain_read", plain_read)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
    for (const char *isa : {"amx", "avx512bf16", "vnni", "avx512", "avx2", "scalar"})
        for (keel_dtype dtype : {KEEL_DTYPE_Q4_0, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_K, KEEL_DTYPE_Q5_K,
                                 KEEL_DTYPE_Q6_K, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_F32})
            for (int64_t m : {1, 8, 512})
                for (const Shape &s : shapes) {
                    if (m == 512 && s.per_token == 1)
                        continue; // only the last token of a prompt needs the output head
                    const std::string name = std::string(isa) + "/" + keel_dtype_name(dtype) +
                                             "/m:" + std::to_string(m) + "/" + s.name;
                    benchmark::RegisterBenchmark(
                        name.c_str(),
                        [&s, dtype, m, isa](benchmark::State &st) { matmul(st, s, dtype, m, isa); })
                        ->UseRealTime()
                        ->Unit(benchmark::kMillisecond);
                }
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
