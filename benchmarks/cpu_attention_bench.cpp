// The CPU plugin's attention at TinyLlama-1.1B's shape (32 heads of 64, 4 KV heads) and at that of a model without groups, through
// the C table: GB/s of cache for decode, GFLOP/s for prefill. Several layers' caches are walked in turn, as in a whole model.
//   cpu_attention_bench --threads=2 --isa=vnni --benchmark_filter='decode.*f16'
#include "plugin/host.hpp"
#include "plugin/library.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

namespace {

using namespace keel;

int64_t threads = 0; // --threads=N; 1 makes the CPU column tell the truth on a machine that is busy
const char *wanted_isa = "auto"; // --isa=NAME, and with --exact `compute: exact`
const char *compute = "fast";

constexpr int64_t block_slots = 64, head_dim = 64;

struct Shape {
    const char *name;
    int64_t heads, kv_heads;
};
constexpr Shape shapes[] = {{"tinyllama", 32, 4}, {"llama32_1b", 32, 8}, {"no_groups", 16, 16}};

const keel_backend &backend() {
    static PluginLibrary library(KEEL_CPU_PLUGIN, SourceLocation{});
    return library.backend();
}

const keel_host *host() {
    static HostServices services;
    return services.table();
}

void check(keel_status status, const char *what) {
    if (status == KEEL_OK) return;
    const auto error = HostServices::take_error();
    throw std::runtime_error(std::string(what) + ": " + (error ? error->message : status_name(status)));
}

struct Layer {
    keel_tensor k, v, table, lengths, positions;
    keel_kv_view view;
};

// A context with queries and the caches of some layers, blocks of each in scrambled order.
struct Setup {
    keel_ctx *ctx = nullptr;
    std::vector<keel_buffer *> buffers;
    std::vector<Layer> layers;
    keel_tensor q{}, scores_out{};
    keel_scores scores{};
    keel_plan *plan = nullptr;
    keel_plan_info info{};
    uint64_t features = KEEL_ATTENTION_CAUSAL;
    std::mt19937 random{1};

    Setup(const Shape &s, keel_dtype dtype, int64_t m, int64_t length, uint32_t window, const char *isa) {
        keel_param words[3] = {};
        words[0] = {KEEL_HEADER(keel_param), "threads", KEEL_PARAM_INT, 0, threads, 0, nullptr};
        words[1] = {KEEL_HEADER(keel_param), "isa", KEEL_PARAM_CHOICE, 0, 0, 0, isa};
        words[2] = {KEEL_HEADER(keel_param), "compute", KEEL_PARAM_CHOICE, 1, 0, 0, compute};
        const keel_param *params[] = {&words[0], &words[1], &words[2]};
        const keel_ctx_desc desc = {KEEL_HEADER(keel_ctx_desc), 0, 3, params};
        check(backend().ctx_create(host(), &desc, &ctx), "ctx_create");
        q = tensor(KEEL_DTYPE_F32, {m, s.heads, head_dim});
        fill(q, 1.0F);
        scores_out = tensor(KEEL_DTYPE_F32, {s.kv_heads, length});
        scores = {KEEL_HEADER(keel_scores), &scores_out, window, KEEL_REDUCE_SUM, KEEL_REDUCE_MEAN, 0};
        if (window != 0) features |= KEEL_ATTENTION_SCORES;
        layers.resize(m > 1 ? 2 : 22);
        for (Layer &layer : layers)
            make_layer(layer, s, dtype, length);
        keel_attention_args args = arguments(0);
        check(backend().op_plan(ctx, KEEL_OP_ATTENTION, reinterpret_cast<keel_op_args *>(&args), &plan),
              "op_plan");
        info.h = KEEL_HEADER(keel_plan_info);
        check(backend().plan_info(ctx, plan, &info), "plan_info");
    }
    Setup(const Setup &) = delete;
    ~Setup() {
        backend().plan_destroy(ctx, plan);
        for (keel_buffer *b : buffers)
            backend().buffer_destroy(ctx, b);
        backend().ctx_destroy(ctx);
    }

    keel_tensor tensor(keel_dtype dtype, std::vector<int64_t> shape) {
        keel_tensor t{};
        t.h = KEEL_HEADER(keel_tensor);
        t.dtype = dtype;
        t.rank = static_cast<uint32_t>(shape.size());
        auto bytes = static_cast<int64_t>(keel_dtype_row_bytes(dtype, static_cast<uint64_t>(shape.back())));
        for (size_t i = shape.size(); i-- > 0;) {
            t.shape[i] = shape[i];
            if (i + 1 < shape.size()) t.stride[i] = bytes, bytes *= shape[i];
        }
        const keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc), static_cast<uint64_t>(bytes),
                                       KEEL_BUFFER_DEVICE, 0, nullptr};
        check(backend().buffer_create(ctx, &desc, &t.buffer), "buffer_create");
        buffers.push_back(t.buffer);
        return t;
    }

    void fill(const keel_tensor &t, float spread) {
        std::vector<float> values(static_cast<size_t>(t.shape[0] * t.shape[1] * t.shape[2]));
        std::normal_distribution<float> normal(0, spread);
        for (float &v : values)
            v = normal(random);
        check(backend().buffer_write(ctx, t.buffer, 0, values.data(), values.size() * 4), "buffer_write");
    }

    void integers(const keel_tensor &t, const std::vector<int32_t> &values) {
        check(backend().buffer_write(ctx, t.buffer, 0, values.data(), values.size() * 4), "buffer_write");
    }

    void make_layer(Layer &l, const Shape &s, keel_dtype dtype, int64_t length) {
        const int64_t per_head = (length + block_slots - 1) / block_slots, blocks = per_head * s.kv_heads;
        l.k = tensor(dtype, {blocks, block_slots, head_dim});
        l.v = tensor(dtype, {blocks, block_slots, head_dim});
        l.table = tensor(KEEL_DTYPE_I32, {s.kv_heads, per_head});
        l.lengths = tensor(KEEL_DTYPE_I32, {s.kv_heads});
        l.positions = tensor(KEEL_DTYPE_I32, {s.kv_heads, length});
        std::vector<int32_t> order(static_cast<size_t>(blocks));
        for (size_t i = 0; i < order.size(); ++i)
            order[i] = static_cast<int32_t>(i);
        std::shuffle(order.begin(), order.end(), random);
        integers(l.table, order);
        integers(l.lengths,
                 std::vector<int32_t>(static_cast<size_t>(s.kv_heads), static_cast<int32_t>(length)));
        l.view = {KEEL_HEADER(keel_kv_view),
                  &l.k,
                  &l.v,
                  &l.table,
                  &l.lengths,
                  &l.positions,
                  static_cast<uint32_t>(block_slots),
                  static_cast<uint32_t>(s.kv_heads),
                  length};
        append(l, s, length);
    }

    // Contents in the cache's dtype, by the backend itself.
    void append(Layer &l, const Shape &s, int64_t length) {
        keel_tensor k = tensor(KEEL_DTYPE_F32, {length, s.kv_heads, head_dim});
        keel_tensor positions = tensor(KEEL_DTYPE_I32, {length});
        std::vector<int32_t> numbers(static_cast<size_t>(length));
        for (size_t i = 0; i < numbers.size(); ++i)
            numbers[i] = static_cast<int32_t>(i);
        integers(positions, numbers);
        fill(k, 1.0F);
        keel_kv_append_args a{};
        a.h = KEEL_HEADER(keel_kv_append_args);
        a.k = a.v = &k;
        a.positions = &positions;
        a.kv = &l.view;
        check(backend().kv_append(ctx, &a), "kv_append");
        for (int i = 0; i < 2; ++i) {
            backend().buffer_destroy(ctx, buffers.back());
            buffers.pop_back();
        }
    }

    keel_attention_args arguments(size_t i) {
        keel_attention_args a{};
        a.h = KEEL_HEADER(keel_attention_args);
        a.features = features;
        a.plan = plan;
        a.q = &q;
        a.kv = &layers[i % layers.size()].view;
        a.out = &q; // stays within the values: a mean of them
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
            check(backend().attention(setup.ctx, &a), "attention");
        }
        using benchmark::Counter;
        const double runs = static_cast<double>(state.iterations());
        const double bytes = 2.0 * static_cast<double>(keel_dtype_row_bytes(dtype, head_dim)) *
                             static_cast<double>(length * s.kv_heads);
        // pairs of query and key that see each other, two products of head_dim for each
        const double pairs =
            static_cast<double>(m) * (static_cast<double>(length) - static_cast<double>(m - 1) / 2);
        state.counters["GB/s"] = Counter(1e-9 * bytes * runs, Counter::kIsRate);
        state.counters["GFLOP/s"] =
            Counter(4e-9 * pairs * static_cast<double>(s.heads * head_dim) * runs, Counter::kIsRate);
        state.SetLabel(setup.info.kernel);
    } catch (const std::exception &e) {
        state.SkipWithError(e.what());
    }
}

void add(const Shape &s, keel_dtype dtype, int64_t m, int64_t length, uint32_t window, const char *isa) {
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
            for (const int64_t length : {64, 512, 4096})
                add(s, dtype, 1, length, 0, wanted_isa);
            for (const int64_t m : {4, 64, 512, 2048})
                add(s, dtype, m, std::max<int64_t>(m, 512), 0, wanted_isa);
        }
    for (const char *isa : {"scalar", "avx2", "avx512"})
        add(shapes[0], KEEL_DTYPE_F16, 512, 512, 0, isa);
    add(shapes[0], KEEL_DTYPE_F16, 1, 2048, 1, wanted_isa);
    add(shapes[0], KEEL_DTYPE_F16, 512, 2048, 32, wanted_isa);
    add(shapes[0], KEEL_DTYPE_F16, 512, 2048, 512, wanted_isa);
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
