// Measures the CPU plugin's other ops through the C table, on each instruction set, for one token
// and for a chunk of a prompt. The shape is that of TinyLlama-1.1B (hidden 2048, feed-forward 5632,
// 32 heads of 64, 4 KV heads). GB/s counts each input and output once; those of a chunk stay in a
// cache, as in a model. Instruction sets that the machine lacks are reported as skipped. Example:
//   cpu_ops_bench --threads=1 --benchmark_filter='rope|silu_mul.*avx512'
#include "cpu_rig.hpp"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <functional>

namespace {

using namespace keel::bench;

int64_t threads = 0; // --threads=N

constexpr int64_t hidden = 2048, feed_forward = 5632, heads = 32, kv_heads = 4, head_dim = 64,
                  vocabulary = 32000, slots = 1024;

// The call to measure, and the bytes that it moves.
struct Prepared {
    std::function<keel_status()> call;
    double bytes = 0;
    std::string kernel;
};
using Prepare = std::function<Prepared(Rig &, int64_t m)>;

// Prepares an op without state: `args` is filled and planned once, then called repeatedly.
template <typename Args, typename Fill>
Prepared planned(Rig &rig, keel_op op,
                 keel_status (KEEL_CALL *keel_backend::*slot)(keel_ctx *, const Args *),
                 double bytes, Fill &&fill) {
    auto args = std::make_shared<Args>();
    args->h = {sizeof(Args), 0};
    auto tensors = std::make_shared<std::vector<keel_tensor>>();
    tensors->reserve(16); // args point into it, so it must not reallocate
    fill(*args, *tensors);
    Prepared p;
    p.kernel = rig.plan(op, *args);
    p.bytes = bytes;
    p.call = [&rig, args, tensors, slot] { return (backend().*slot)(rig.ctx, args.get()); };
    return p;
}

const keel_tensor *keep(std::vector<keel_tensor> &all, const keel_tensor &t) {
    all.push_back(t);
    return &all.back();
}

Prepared norm(Rig &rig, int64_t m) {
    return planned<keel_norm_args>(rig, KEEL_OP_ADD_RMS_NORM, &keel_backend::add_rms_norm,
                                   4.0 * static_cast<double>(4 * m * hidden + hidden),
                                   [&](keel_norm_args &a, auto &all) {
                                       a.x = keep(all, rig.filled({m, hidden}));
                                       a.residual = keep(all, rig.filled({m, hidden}));
                                       a.weight = keep(all, rig.filled({hidden}));
                                       a.out = keep(all, rig.filled({m, hidden}));
                                       a.eps = 1e-5F;
                                   });
}

Prepared gate(Rig &rig, int64_t m, keel_op op,
              keel_status (KEEL_CALL *keel_backend::*slot)(keel_ctx *, const keel_gate_args *)) {
    return planned<keel_gate_args>(rig, op, slot, 4.0 * static_cast<double>(3 * m * feed_forward),
                                   [&](keel_gate_args &a, auto &all) {
                                       a.gate = keep(all, rig.filled({m, feed_forward}));
                                       a.up = keep(all, rig.filled({m, feed_forward}));
                                       a.out = keep(all, rig.filled({m, feed_forward}));
                                   });
}

Prepared rope(Rig &rig, int64_t m) {
    auto tables = std::make_shared<keel_rope_tables>();
    tables->h = KEEL_HEADER(keel_rope_tables);
    Prepared p = planned<keel_rope_args>(
        rig, KEEL_OP_ROPE, &keel_backend::rope, 4.0 * static_cast<double>(2 * m * heads * head_dim),
        [&](keel_rope_args &a, auto &all) {
            a.x = keep(all, rig.filled({m, heads, head_dim}));
            a.positions = keep(all, rig.counted(m));
            tables->cos = keep(all, rig.filled({slots, head_dim / 2}));
            tables->sin = keep(all, rig.filled({slots, head_dim / 2}));
            tables->mode = KEEL_ROPE_HALF_SPLIT;
            tables->rot = head_dim;
            a.tables = tables.get();
            a.out = keep(all, rig.filled({m, heads, head_dim}));
        });
    p.call = [call = p.call, tables] { return call(); };
    return p;
}

Prepared cast(Rig &rig, int64_t m, keel_dtype dtype) {
    return planned<keel_move_args>(
        rig, KEEL_OP_CAST, &keel_backend::cast,
        static_cast<double>(m) *
            (4.0 * hidden + static_cast<double>(keel_dtype_row_bytes(dtype, hidden))),
        [&](keel_move_args &a, auto &all) {
            a.x = keep(all, rig.filled({m, hidden}));
            a.out = keep(all, rig.tensor(dtype, {m, hidden}));
        });
}

Prepared softmax(Rig &rig, int64_t m) {
    return planned<keel_move_args>(rig, KEEL_OP_SOFTMAX, &keel_backend::softmax,
                                   4.0 * static_cast<double>(2 * m * hidden),
                                   [&](keel_move_args &a, auto &all) {
                                       a.x = keep(all, rig.filled({m, hidden}));
                                       a.out = keep(all, rig.filled({m, hidden}));
                                   });
}

Prepared argmax(Rig &rig, int64_t m) {
    return planned<keel_rows_args>(rig, KEEL_OP_ARGMAX_ROWS, &keel_backend::argmax_rows,
                                   4.0 * static_cast<double>(m * vocabulary),
                                   [&](keel_rows_args &a, auto &all) {
                                       a.x = keep(all, rig.filled({m, vocabulary}));
                                       a.index = keep(all, rig.tensor(KEEL_DTYPE_I32, {m}));
                                   });
}

// Appends the rows of m tokens to a cache of `slots` slots.
Prepared append(Rig &rig, int64_t m, keel_dtype dtype) {
    auto layer = std::make_shared<Layer>();
    rig.make_layer(*layer, kv_heads, head_dim, dtype, slots);
    Prepared p = planned<keel_kv_append_args>(
        rig, KEEL_OP_KV_APPEND, &keel_backend::kv_append,
        2.0 * static_cast<double>(m * kv_heads) *
            (4.0 * head_dim + static_cast<double>(keel_dtype_row_bytes(dtype, head_dim))),
        [&](keel_kv_append_args &a, auto &all) {
            a.k = keep(all, rig.filled({m, kv_heads, head_dim}));
            a.v = keep(all, rig.filled({m, kv_heads, head_dim}));
            a.positions = keep(all, rig.counted(m));
            a.kv = &layer->view;
        });
    p.call = [call = p.call, layer] { return call(); };
    return p;
}

// A compaction that keeps every second slot of each head.
Prepared gather(Rig &rig, keel_dtype dtype) {
    auto from = std::make_shared<Layer>(), to = std::make_shared<Layer>();
    rig.make_layer(*from, kv_heads, head_dim, dtype, slots);
    rig.make_layer(*to, kv_heads, head_dim, dtype, slots);
    constexpr int64_t kept = slots / 2;
    std::vector<int32_t> index;
    for (int64_t i = 0; i < kv_heads * kept; ++i)
        index.push_back(static_cast<int32_t>(2 * (i % kept)));
    Prepared p = planned<keel_kv_gather_args>(
        rig, KEEL_OP_KV_GATHER, &keel_backend::kv_gather,
        4.0 * static_cast<double>(kept * kv_heads) *
            static_cast<double>(keel_dtype_row_bytes(dtype, head_dim)),
        [&](keel_kv_gather_args &a, auto &all) {
            a.from = &from->view;
            a.to = &to->view;
            a.index = keep(all, rig.integers({kv_heads, kept}, index));
            a.count = keep(all, rig.integers({kv_heads}, std::vector<int32_t>(kv_heads, kept)));
        });
    p.call = [call = p.call, from, to] { return call(); };
    return p;
}

void run(benchmark::State &state, const char *isa, int64_t m, const Prepare &prepare) {
    try {
        Rig rig(threads, isa, "fast");
        const Prepared p = prepare(rig, m);
        for (auto _ : state) check(p.call(), "the op");
        state.counters["GB/s"] = benchmark::Counter(
            1e-9 * p.bytes * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
        state.SetLabel(p.kernel);
    } catch (const std::exception &e) {
        state.SkipWithError(e.what());
    }
}

} // namespace

int main(int argc, char **argv) {
    int kept = 1;
    for (int i = 1; i < argc; ++i) {
        if (std::strncmp(argv[i], "--threads=", 10) == 0)
            threads = std::atoi(argv[i] + 10);
        else
            argv[kept++] = argv[i];
    }
    argc = kept;
    const std::vector<std::pair<std::string, Prepare>> ops = {
        {"add_rms_norm", norm},
        {"silu_mul",
         [](Rig &r, int64_t m) { return gate(r, m, KEEL_OP_SILU_MUL, &keel_backend::silu_mul); }},
        {"gelu_mul",
         [](Rig &r, int64_t m) { return gate(r, m, KEEL_OP_GELU_MUL, &keel_backend::gelu_mul); }},
        {"rope", rope},
        {"softmax", softmax},
        {"argmax_rows", argmax},
        {"cast_f16", [](Rig &r, int64_t m) { return cast(r, m, KEEL_DTYPE_F16); }},
        {"cast_q8_0", [](Rig &r, int64_t m) { return cast(r, m, KEEL_DTYPE_Q8_0); }},
        {"kv_append_f16", [](Rig &r, int64_t m) { return append(r, m, KEEL_DTYPE_F16); }},
        {"kv_append_q8_0", [](Rig &r, int64_t m) { return append(r, m, KEEL_DTYPE_Q8_0); }},
        {"kv_append_q4_0", [](Rig &r, int64_t m) { return append(r, m, KEEL_DTYPE_Q4_0); }},
        {"kv_gather_f16", [](Rig &r, int64_t) { return gather(r, KEEL_DTYPE_F16); }},
    };
#if defined(__aarch64__)
    const std::vector<const char *> isas = {"scalar", "neon", "dotprod", "fp16", "i8mm"};
#else
    const std::vector<const char *> isas = {"scalar", "avx2",       "avx512",
                                            "vnni",   "avx512bf16", "amx"};
#endif
    for (const auto &op : ops)
        for (const char *isa : isas)
            for (const int64_t m : {1, 512}) {
                // kv_gather has no rows, so there is no chunk
                if (m > 1 && op.first == "kv_gather_f16") continue;
                const Prepare &prepare = op.second;
                const std::string name = op.first + "/" + isa + "/m:" + std::to_string(m);
                benchmark::RegisterBenchmark(
                    name.c_str(), [=](benchmark::State &state) { run(state, isa, m, prepare); })
                    ->UseRealTime()
                    ->Unit(benchmark::kMicrosecond);
            }
    benchmark::Initialize(&argc, argv);
    benchmark::RunSpecifiedBenchmarks();
}
