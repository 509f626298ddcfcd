// kernels: auto. The first time that a family of kernels is wanted, both forms of one of them run on memory of zeros, and the faster one
// serves the context. What was found is kept in the cache folder.
#include "ops.hpp"

#include <chrono>
#include <string.h>

namespace keel_opencl {
namespace {

// Tensors of zeros for as long as a measurement takes.
class Trial {
  public:
    explicit Trial(keel_ctx &ctx) : ctx_(ctx) {}

    const keel_tensor *tensor(keel_dtype dtype, std::initializer_list<int64_t> shape, int32_t fill = 0) {
        keel_tensor t{};
        t.h = KEEL_HEADER(keel_tensor);
        t.dtype = dtype;
        for (const int64_t n : shape)
            t.shape[t.rank++] = n;
        auto stride = static_cast<int64_t>(row_bytes(&t));
        for (uint32_t i = t.rank - 1; i-- > 0; stride *= t.shape[i])
            t.stride[i] = stride;
        cl_int code = CL_SUCCESS;
        keel_buffer &b = buffers_.emplace_back();
        b.size = static_cast<uint64_t>((stride + 3) / 4 * 4); // the fill is of four bytes
        b.memory.reset(clCreateBuffer(ctx_.context.get(), CL_MEM_READ_WRITE, b.size, nullptr, &code));
        check(ctx_.host, code, "memory to measure with");
        check(ctx_.host,
              clEnqueueFillBuffer(ctx_.queue.get(), b.memory.get(), &fill, 4, 0, b.size, 0, nullptr, nullptr),
              "clEnqueueFillBuffer");
        t.buffer = &b;
        return &tensors_.emplace_back(t);
    }

  private:
    keel_ctx &ctx_;
    std::deque<keel_buffer> buffers_;
    std::deque<keel_tensor> tensors_;
};

void run_rows_trial(keel_ctx &ctx, Trial &trial) {
    keel_norm_args a{};
    a.x = trial.tensor(KEEL_DTYPE_F32, {4, 4096});
    a.weight = trial.tensor(KEEL_DTYPE_F32, {4096});
    a.out = trial.tensor(KEEL_DTYPE_F32, {4, 4096});
    a.eps = 1e-5F;
    for (int i = 0; i < 16; ++i)
        run_rms_norm(ctx, a);
}

void run_matmul_trial(keel_ctx &ctx, Trial &trial, int64_t m) {
    keel_matmul_args a{};
    a.x = trial.tensor(KEEL_DTYPE_F32, {m, 1024});
    a.w = trial.tensor(KEEL_DTYPE_Q4_0, {1024, 1024});
    a.out = trial.tensor(KEEL_DTYPE_F32, {m, 1024});
    for (int i = 0; i < (m == 1 ? 16 : 2); ++i)
        run_matmul(ctx, a);
}

void run_attention_trial(keel_ctx &ctx, Trial &trial) {
    constexpr int32_t slots = 512;
    keel_kv_view kv{};
    kv.k = trial.tensor(KEEL_DTYPE_F16, {slots / 64, 64, 64}); // all blocks are block 0
    kv.v = trial.tensor(KEEL_DTYPE_F16, {slots / 64, 64, 64});
    kv.block_table = trial.tensor(KEEL_DTYPE_I32, {4, slots / 64});
    kv.lengths = trial.tensor(KEEL_DTYPE_I32, {4}, slots);
    kv.positions = trial.tensor(KEEL_DTYPE_I32, {4, slots});
    kv.block_slots = 64;
    kv.kv_heads = 4;
    kv.max_length = slots;
    keel_attention_args a{};
    a.features = KEEL_ATTENTION_CAUSAL;
    a.kv = &kv;
    a.q = trial.tensor(KEEL_DTYPE_F32, {1, 16, 64});
    a.out = trial.tensor(KEEL_DTYPE_F32, {1, 16, 64});
    a.scale = 0.125F;
    for (int i = 0; i < 8; ++i)
        run_attention(ctx, a);
}

void run_trial(keel_ctx &ctx, Trial &trial, Family family) {
    switch (family) {
    case Family::rows:
        return run_rows_trial(ctx, trial);
    case Family::matvec:
        return run_matmul_trial(ctx, trial, 1);
    case Family::matmul:
        return run_matmul_trial(ctx, trial, 64);
    case Family::attention:
        return run_attention_trial(ctx, trial);
    }
}

// Seconds of the best of three runs; the first one, which compiles, does not count.
double measure(keel_ctx &ctx, Family family, Form form) {
    ctx.forms[static_cast<size_t>(family)] = form;
    double best = 1e9;
    for (int run = 0; run < 4; ++run) {
        Trial trial(ctx);
        const auto begin = std::chrono::steady_clock::now();
        run_trial(ctx, trial, family);
        finish(ctx);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        if (run > 0 && took.count() < best) best = took.count();
    }
    return best;
}

// The form that is made for devices of this kind, unless the other one is faster by a fifth: a busy machine measures badly.
Form choose(keel_ctx &ctx, Family family) {
    const bool cpu = ctx.device.is_cpu();
    try {
        const double plain = measure(ctx, family, Form::plain);
        const double local = measure(ctx, family, Form::local);
        return local < (cpu ? 0.8 : 1.25) * plain ? Form::local : Form::plain;
    } catch (
        const Refusal &
            refusal) { // a driver that does not take the local form has the other, as one without memory to measure with
        if (refusal.status == KEEL_E_DEVICE_LOST) throw;
        return Form::plain;
    }
}

} // namespace

Form form_of(keel_ctx &ctx, Family family) {
    const auto place = static_cast<size_t>(family);
    if (!ctx.measures || ctx.measured[place]) return ctx.forms[place];
    ctx.measured[place] = true;
    constexpr const char *names[family_count] = {"form of rows", "form of matvec", "form of matmul",
                                                 "form of attention"};
    constexpr Source sources[family_count] = {Source::norm, Source::linear, Source::linear,
                                              Source::attention};
    const ProgramCache &cache = ctx.programs->cache();
    const ProgramCache::Key key =
        cache.key(names[place], types_text, source_texts[static_cast<size_t>(sources[place])].text);
    const std::vector<unsigned char> kept = cache.load(key);
    if (kept.size() == 1 && kept[0] <= 1) return ctx.forms[place] = kept[0] == 1 ? Form::local : Form::plain;
    struct NotRecorded { // what is being recorded is not of this
        keel_ctx &ctx;
        std::unique_ptr<keel_recording> recording = std::exchange(ctx.recording, nullptr);
        ~NotRecorded() { ctx.recording = std::move(recording); }
    };
    const Form form = [&] {
        const NotRecorded pause{ctx};
        return choose(ctx, family);
    }();
    cache.store(key, {static_cast<unsigned char>(form == Form::local ? 1 : 0)});
    return ctx.forms[place] = form;
}

} // namespace keel_opencl
