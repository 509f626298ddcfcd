// Code that the micro-benchmarks of the CPU plugin share: the plugin through its C table, contexts,
// tensors, and filled caches.
#pragma once

#include "plugin/host.hpp"
#include "plugin/library.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace keel::bench {

inline const keel_backend &backend() {
    static PluginLibrary library(KEEL_CPU_PLUGIN, SourceLocation{});
    return library.backend();
}

inline const keel_host *host() {
    static HostServices services;
    return services.table();
}

inline void check(keel_status status, const char *what) {
    if (status == KEEL_OK) return;
    const auto error = HostServices::take_error();
    throw std::runtime_error(std::string(what) + ": " +
                             (error ? error->message : status_name(status)));
}

// The cache of one layer. The slots of a head are in blocks in scrambled order.
struct Layer {
    keel_tensor k, v, table, lengths, positions;
    keel_kv_view view;
};

// A context of the plugin, and the objects that were made in it.
class Rig {
  public:
    static constexpr int64_t block_slots = 64;

    Rig(int64_t threads, const char *isa, const char *compute) {
        keel_param words[3] = {};
        words[0] = {KEEL_HEADER(keel_param), "threads", KEEL_PARAM_INT, 0, threads, 0, nullptr};
        words[1] = {KEEL_HEADER(keel_param), "isa", KEEL_PARAM_CHOICE, 0, 0, 0, isa};
        words[2] = {KEEL_HEADER(keel_param), "compute", KEEL_PARAM_CHOICE, 1, 0, 0, compute};
        const keel_param *params[] = {&words[0], &words[1], &words[2]};
        const keel_ctx_desc desc = {KEEL_HEADER(keel_ctx_desc), 0, 3, params};
        check(backend().ctx_create(host(), &desc, &ctx), "ctx_create");
    }
    Rig(const Rig &) = delete;
    Rig &operator=(const Rig &) = delete;
    ~Rig() {
        for (keel_plan *plan : plans_) backend().plan_destroy(ctx, plan);
        for (keel_buffer *buffer : buffers_) backend().buffer_destroy(ctx, buffer);
        backend().ctx_destroy(ctx);
    }

    // A contiguous tensor in its own buffer.
    keel_tensor tensor(keel_dtype dtype, const std::vector<int64_t> &shape) {
        keel_tensor t{};
        t.h = KEEL_HEADER(keel_tensor);
        t.dtype = dtype;
        t.rank = static_cast<uint32_t>(shape.size());
        auto bytes =
            static_cast<int64_t>(keel_dtype_row_bytes(dtype, static_cast<uint64_t>(shape.back())));
        for (size_t i = shape.size(); i-- > 0;) {
            t.shape[i] = shape[i];
            if (i + 1 < shape.size()) t.stride[i] = bytes, bytes *= shape[i];
        }
        const keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc), static_cast<uint64_t>(bytes),
                                       KEEL_BUFFER_DEVICE, 0, nullptr};
        check(backend().buffer_create(ctx, &desc, &t.buffer), "buffer_create");
        buffers_.push_back(t.buffer);
        return t;
    }
    // An f32 tensor of normally distributed numbers.
    keel_tensor filled(const std::vector<int64_t> &shape) {
        const keel_tensor t = tensor(KEEL_DTYPE_F32, shape);
        const int64_t n =
            std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
        std::vector<float> values(static_cast<size_t>(n));
        std::normal_distribution<float> normal(0, 1);
        for (float &v : values) v = normal(random_);
        check(backend().buffer_write(ctx, t.buffer, 0, values.data(), values.size() * 4),
              "buffer_write");
        return t;
    }
    keel_tensor integers(const std::vector<int64_t> &shape, const std::vector<int32_t> &values) {
        const keel_tensor t = tensor(KEEL_DTYPE_I32, shape);
        check(backend().buffer_write(ctx, t.buffer, 0, values.data(), values.size() * 4),
              "buffer_write");
        return t;
    }
    keel_tensor counted(int64_t n) { // 0, 1, ..., n - 1
        std::vector<int32_t> values(static_cast<size_t>(n));
        std::iota(values.begin(), values.end(), 0);
        return integers({n}, values);
    }
    // Frees the last n tensors.
    void drop(size_t n) {
        for (; n > 0; --n) {
            backend().buffer_destroy(ctx, buffers_.back());
            buffers_.pop_back();
        }
    }

    // Fills `length` slots of each head with the backend's own ops. The layer must not be moved.
    void make_layer(Layer &l, int64_t kv_heads, int64_t head_dim, keel_dtype dtype,
                    int64_t length) {
        const int64_t per_head = (length + block_slots - 1) / block_slots,
                      blocks = per_head * kv_heads;
        l.k = tensor(dtype, {blocks, block_slots, head_dim});
        l.v = tensor(dtype, {blocks, block_slots, head_dim});
        std::vector<int32_t> order(static_cast<size_t>(blocks));
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random_);
        l.table = integers({kv_heads, per_head}, order);
        l.lengths = integers({kv_heads}, std::vector<int32_t>(static_cast<size_t>(kv_heads),
                                                              static_cast<int32_t>(length)));
        l.positions = tensor(KEEL_DTYPE_I32, {kv_heads, length});
        l.view = {KEEL_HEADER(keel_kv_view),
                  &l.k,
                  &l.v,
                  &l.table,
                  &l.lengths,
                  &l.positions,
                  static_cast<uint32_t>(block_slots),
                  static_cast<uint32_t>(kv_heads),
                  length};
        const keel_tensor k = filled({length, kv_heads, head_dim}), positions = counted(length);
        keel_kv_append_args a{};
        a.h = KEEL_HEADER(keel_kv_append_args);
        a.k = a.v = &k;
        a.positions = &positions;
        a.kv = &l.view;
        check(backend().kv_append(ctx, &a), "kv_append");
        drop(2);
    }

    // Plans `args` and sets its plan member. Returns the kernel's name.
    template <typename Args> std::string plan(keel_op op, Args &args) {
        check(backend().op_plan(ctx, op, reinterpret_cast<keel_op_args *>(&args), &args.plan),
              "op_plan");
        plans_.push_back(args.plan);
        keel_plan_info info{};
        info.h = KEEL_HEADER(keel_plan_info);
        check(backend().plan_info(ctx, args.plan, &info), "plan_info");
        return info.kernel;
    }

    keel_ctx *ctx = nullptr;

  private:
    std::vector<keel_buffer *> buffers_;
    std::vector<keel_plan *> plans_;
    std::mt19937 random_{1};
};

} // namespace keel::bench
