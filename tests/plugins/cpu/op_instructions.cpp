// Runs ops of the CPU plugin on one thread, each between two markers: op_instructions ISA COMPUTE.
// scripts/aarch64-instructions.sh counts the instructions between the markers. Before each op, the
// program prints a line with the kernel, a description, and the number of multiply-adds of the op.
// For ops without multiply-adds it prints the number of elements.
#include "conformance/suite.hpp"

#include <cstdio>
#include <functional>

using namespace keel;
using namespace keel::conformance;

namespace {

// tools/emulation/count_instructions.c recognizes this instruction; processors ignore it.
void marker() {
#if defined(__aarch64__)
    __asm__ volatile("hint #101" ::: "memory");
#endif
}

// Calls the op once to initialize tables and scratch memory. Then calls it again between the
// markers.
void measure(const std::string &kernel, const std::string &what, int64_t work,
             const std::function<keel_status()> &call) {
    if (call() != KEEL_OK) throw std::runtime_error(what + " failed");
    std::printf("%s|%s|%lld\n", kernel.c_str(), what.c_str(), static_cast<long long>(work));
    std::fflush(stdout);
    marker();
    call();
    marker();
}

template <typename Args> Args head() {
    Args a = {};
    a.h = {sizeof(Args), KEEL_ABI_VERSION};
    return a;
}

void matmul(Side &side, keel_dtype dtype, int64_t m) {
    constexpr int64_t n = 256, k = 2048;
    Rng rng(1);
    Scene scene;
    const int x = scene.add(random_tensor(rng, KEEL_DTYPE_F32, {m, k}));
    const int w = scene.add(random_tensor(rng, dtype, {n, k}));
    const int out = scene.add(blank(KEEL_DTYPE_F32, {m, n}));
    WeightSpec spec;
    spec.sources = {w};
    spec.max_m = static_cast<uint32_t>(m);
    const int weight = scene.add(spec);
    Stage stage(side, scene, {.planned = true});
    auto a = head<keel_matmul_args>();
    a.x = stage.tensor(x);
    a.weight = stage.weight(weight);
    a.out = stage.tensor(out);
    stage.run(KEEL_OP_MATMUL, a);
    measure(stage.kernel(), "[" + std::to_string(m) + ", 2048] x [256, 2048]", m * n * k,
            [&] { return side.table().matmul(side.ctx(), &a); });
}

void attention(Side &side, keel_dtype dtype, int64_t m) {
    constexpr int64_t kv_heads = 2, group = 4, dim = 64;
    constexpr int32_t length = 512;
    Rng rng(1);
    Scene scene;
    CacheShape shape;
    shape.lengths = std::vector<int32_t>(kv_heads, length);
    shape.block_slots = 64;
    shape.k_dtype = shape.v_dtype = dtype;
    const int cache = add_cache(scene, rng, shape);
    const int q = scene.add(random_tensor(rng, KEEL_DTYPE_F32, {m, kv_heads * group, dim}));
    const int out = scene.add(blank(KEEL_DTYPE_F32, {m, kv_heads * group, dim}));
    Stage stage(side, scene, {.planned = true});
    auto a = head<keel_attention_args>();
    a.features = KEEL_ATTENTION_CAUSAL;
    a.q = stage.tensor(q);
    a.kv = stage.cache(cache);
    a.out = stage.tensor(out);
    a.scale = 0.125F;
    stage.run(KEEL_OP_ATTENTION, a);
    int64_t seen = 0;
    for (int64_t i = 0; i < m; ++i) seen += length - m + i + 1;
    measure(stage.kernel(), std::to_string(m) + " queries, 8 heads, 2 of 512 slots",
            seen * kv_heads * group * dim * 2,
            [&] { return side.table().attention(side.ctx(), &a); });
}

void rows(Side &side) {
    constexpr int64_t m = 4, n = 2048;
    Rng rng(1);
    Scene scene;
    const int x = scene.add(random_tensor(rng, KEEL_DTYPE_F32, {m, n}));
    const int y = scene.add(random_tensor(rng, KEEL_DTYPE_F32, {m, n}));
    const int weight = scene.add(random_tensor(rng, KEEL_DTYPE_F32, {n}));
    const int out = scene.add(blank(KEEL_DTYPE_F32, {m, n}));
    Stage stage(side, scene, {.planned = true});
    auto norm = head<keel_norm_args>();
    norm.x = stage.tensor(x);
    norm.weight = stage.tensor(weight);
    norm.out = stage.tensor(out);
    norm.eps = 1e-5F;
    stage.run(KEEL_OP_RMS_NORM, norm);
    measure(stage.kernel(), "[4, 2048]", m * n,
            [&] { return side.table().rms_norm(side.ctx(), &norm); });
    auto gate = head<keel_gate_args>();
    gate.gate = stage.tensor(x);
    gate.up = stage.tensor(y);
    gate.out = stage.tensor(out);
    stage.run(KEEL_OP_SILU_MUL, gate);
    measure(stage.kernel(), "[4, 2048]", m * n,
            [&] { return side.table().silu_mul(side.ctx(), &gate); });
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: op_instructions ISA exact|fast\n");
        return 2;
    }
    try {
        const Library library{std::string(KEEL_CPU_PLUGIN)};
        Side side(library, {{"isa", argv[1]}, {"compute", argv[2]}, {"threads", "1"}}, 1);
        for (const int64_t m : {1, 64})
            for (const keel_dtype w :
                 {KEEL_DTYPE_F32, KEEL_DTYPE_F16, KEEL_DTYPE_BF16, KEEL_DTYPE_Q8_0, KEEL_DTYPE_Q4_0,
                  KEEL_DTYPE_Q4_K, KEEL_DTYPE_Q5_K, KEEL_DTYPE_Q6_K})
                matmul(side, w, m);
        for (const int64_t m : {1, 64})
            for (const keel_dtype kv : {KEEL_DTYPE_F16, KEEL_DTYPE_Q8_0}) attention(side, kv, m);
        rows(side);
    } catch (const Unusable &e) {
        std::fprintf(stderr, "op_instructions: %s\n", e.why.c_str());
        return e.not_here ? 77 : 1;
    } catch (const std::exception &e) {
        std::fprintf(stderr, "op_instructions: %s\n", e.what());
        return 1;
    }
    return 0;
}
