// Opens the CPU plugin with given parameters, for the tests in this folder.
#pragma once

#include "plugin/host.hpp"
#include "plugin/library.hpp"
#include "support/instruction_sets.hpp"

#include <catch2/catch.hpp>

#include <cstring>
#include <string>
#include <vector>

namespace keel::test {

// A plugin, and an instruction set of this plugin that this machine can run.
struct Variant {
    const keel_backend *backend;
    std::string isa;  // value of the parameter `isa`
    std::string word; // name that the kernels report
    std::string few;  // name that the kernels for a few rows report
};

inline const keel_backend &cpu_backend() {
    static PluginLibrary library(KEEL_CPU_PLUGIN, SourceLocation{});
    return library.backend();
}

inline HostServices &services() {
    static HostServices host(2);
    return host;
}

// Opens a context. If this fails, `ctx` stays NULL.
inline keel_status open(const keel_backend &backend, const std::string &isa,
                        const std::string &compute, int64_t threads, keel_ctx *&ctx,
                        const std::string &prefetch = "auto", const std::string &copy = "auto") {
    keel_param words[5] = {};
    const char *keys[] = {"threads", "isa", "compute", "prefetch", "copy"};
    for (int i = 0; i < 5; ++i)
        words[i].h = KEEL_HEADER(keel_param), words[i].key = keys[i],
        words[i].type = KEEL_PARAM_CHOICE;
    words[0].type = KEEL_PARAM_INT;
    words[0].i = threads;
    words[1].s = isa.c_str();
    words[2].s = compute.c_str();
    words[3].s = prefetch.c_str();
    words[4].s = copy.c_str();
    const keel_param *params[] = {&words[0], &words[1], &words[2], &words[3], &words[4]};
    keel_ctx_desc desc{};
    desc.h = KEEL_HEADER(keel_ctx_desc);
    desc.n_params = 5;
    desc.params = params;
    ctx = nullptr;
    HostServices::drop_error();
    return backend.ctx_create(services().table(), &desc, &ctx);
}

// Returns every instruction set that can run here: those of the machine, and emulated AVX-512 and
// AMX.
inline std::vector<Variant> variants() {
    std::vector<Variant> all;
    for (const char *isa : isa_names) {
        if (!is_isa_wanted(isa)) continue;
        keel_ctx *ctx;
        const bool many_alone = std::string(isa) == "avx512bf16" || std::string(isa) == "amx";
        if (open(cpu_backend(), isa, "fast", 1, ctx) == KEEL_OK)
            all.push_back({&cpu_backend(), isa, isa, many_alone ? "vnni" : isa});
        cpu_backend().ctx_destroy(ctx);
    }
    HostServices::drop_error();
    if (std::string(KEEL_CPU_EMULATED).empty()) return all;
    static PluginLibrary emulated(KEEL_CPU_EMULATED, SourceLocation{});
    for (const std::string isa : {"avx512", "amx"}) {
        keel_ctx *ctx;
        if (open(emulated.backend(), isa, "fast", 1, ctx) == KEEL_OK)
            all.push_back({&emulated.backend(), isa, isa + "-emulated", "avx512-emulated"});
        emulated.backend().ctx_destroy(ctx);
    }
    HostServices::drop_error();
    return all;
}

// A context with f32 buffers that exist as long as the context.
class Context {
  public:
    Context(const Variant &v, const std::string &compute, int64_t threads = 2,
            const std::string &prefetch = "auto", const std::string &copy = "auto")
        : backend_(*v.backend) {
        REQUIRE(open(backend_, v.isa, compute, threads, ctx_, prefetch, copy) == KEEL_OK);
    }
    Context(const Context &) = delete;
    ~Context() {
        for (keel_buffer *b : buffers_) backend_.buffer_destroy(ctx_, b);
        backend_.ctx_destroy(ctx_);
    }
    keel_ctx *get() const { return ctx_; }
    const keel_backend &operator*() const { return backend_; }
    const keel_backend *operator->() const { return &backend_; }

    // Returns a [rows, cols] tensor with `gap` elements between rows. write() fills it.
    keel_tensor tensor(keel_dtype dtype, int64_t rows, int64_t cols, int64_t gap = 0) {
        keel_tensor t{};
        t.h = KEEL_HEADER(keel_tensor);
        t.dtype = dtype;
        t.rank = 2;
        t.shape[0] = rows, t.shape[1] = cols;
        t.stride[0] =
            static_cast<int64_t>(keel_dtype_row_bytes(dtype, static_cast<uint64_t>(cols + gap)));
        keel_buffer_desc desc{};
        desc.h = KEEL_HEADER(keel_buffer_desc);
        desc.size = static_cast<uint64_t>(rows * t.stride[0]) + 64;
        REQUIRE(backend_.buffer_create(ctx_, &desc, &t.buffer) == KEEL_OK);
        buffers_.push_back(t.buffer);
        return t;
    }
    template <class T> void write(const keel_tensor &t, const std::vector<T> &values) {
        const size_t row = values.size() / static_cast<size_t>(t.shape[0]);
        for (int64_t r = 0; r < t.shape[0]; ++r)
            REQUIRE(backend_.buffer_write(ctx_, t.buffer, static_cast<uint64_t>(r * t.stride[0]),
                                          values.data() + static_cast<size_t>(r) * row,
                                          row * sizeof(T)) == KEEL_OK);
    }
    template <class T> std::vector<T> read(const keel_tensor &t) {
        std::vector<T> values(static_cast<size_t>(t.shape[0] * t.shape[1]));
        for (int64_t r = 0; r < t.shape[0]; ++r)
            REQUIRE(backend_.buffer_read(ctx_, t.buffer, static_cast<uint64_t>(r * t.stride[0]),
                                         values.data() + r * t.shape[1],
                                         static_cast<uint64_t>(t.shape[1]) * sizeof(T)) == KEEL_OK);
        return values;
    }

  private:
    const keel_backend &backend_;
    keel_ctx *ctx_ = nullptr;
    std::vector<keel_buffer *> buffers_;
};

inline keel_matmul_args matmul_args(const keel_tensor &x, const keel_tensor &w,
                                    const keel_tensor &out) {
    keel_matmul_args a{};
    a.h = KEEL_HEADER(keel_matmul_args);
    a.x = &x;
    a.w = &w;
    a.out = &out;
    return a;
}

} // namespace keel::test
