#pragma once

#include "conformance/test_host.hpp"
#include "numbers/convert.hpp"
#include "reference/reference.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <vector>

namespace keel::test {

using Values = std::vector<double>;
using Ints = std::vector<int32_t>;
using Dims = std::vector<int64_t>;

// A context of the reference backend with tensors. There are three elements (or one block) between
// rows, which are NaN. So each test also checks that ops use the strides.
class Bench {
  public:
    Bench() {
        keel_ctx_desc desc = {KEEL_HEADER(keel_ctx_desc), 0, 0, nullptr};
        REQUIRE(backend().ctx_create(host_.table(), &desc, &ctx_) == KEEL_OK);
    }
    ~Bench() {
        for (keel_tensor &t : tensors_) backend().buffer_destroy(ctx_, t.buffer);
        backend().ctx_destroy(ctx_);
    }
    Bench(const Bench &) = delete;
    Bench &operator=(const Bench &) = delete;

    const keel_backend &backend() const { return *reference_backend(); }
    keel_ctx *ctx() const { return ctx_; }
    std::string error() { return host_.last_error(); }

    const keel_tensor *blank(const Dims &shape, keel_dtype dtype = KEEL_DTYPE_F32) {
        keel_tensor t = {};
        t.h = KEEL_HEADER(keel_tensor);
        t.dtype = dtype;
        t.rank = static_cast<uint32_t>(shape.size());
        const int64_t gap =
            keel_dtype_block(dtype) > 1 ? keel_dtype_bytes(dtype) : 3 * keel_dtype_bytes(dtype);
        auto span =
            static_cast<int64_t>(keel_dtype_row_bytes(dtype, static_cast<uint64_t>(shape.back())));
        for (size_t i = shape.size(); i-- > 0;) {
            t.shape[i] = shape[i];
            if (i + 1 == shape.size()) continue;
            t.stride[i] = span + gap;
            span = t.stride[i] * shape[i];
        }
        t.offset = 8;
        keel_buffer_desc desc = {KEEL_HEADER(keel_buffer_desc), static_cast<uint64_t>(span) + 16,
                                 KEEL_BUFFER_DEVICE, 0, nullptr};
        REQUIRE(backend().buffer_create(ctx_, &desc, &t.buffer) == KEEL_OK);
        const std::vector<uint8_t> nan(desc.size, 0xFF);
        backend().buffer_write(ctx_, t.buffer, 0, nan.data(), nan.size());
        tensors_.push_back(t);
        return &tensors_.back();
    }
    const keel_tensor *floats(const Dims &shape, const Values &values,
                              keel_dtype dtype = KEEL_DTYPE_F32) {
        const keel_tensor *t = blank(shape, dtype);
        const std::vector<float> rounded(values.begin(), values.end());
        std::vector<uint8_t> row(row_bytes(t));
        for (int64_t r = 0; r < rows(t); ++r) {
            convert_from_f32(dtype, rounded.data() + r * shape.back(), row.data(),
                             static_cast<size_t>(shape.back()));
            backend().buffer_write(ctx_, t->buffer, row_offset(t, r), row.data(), row.size());
        }
        return t;
    }
    const keel_tensor *ints(const Dims &shape, const Ints &values) {
        const keel_tensor *t = blank(shape, KEEL_DTYPE_I32);
        for (int64_t r = 0; r < rows(t); ++r) {
            backend().buffer_write(ctx_, t->buffer, row_offset(t, r),
                                   values.data() + r * shape.back(), row_bytes(t));
        }
        return t;
    }

    const keel_tensor *bytes(const Dims &shape, const std::vector<uint8_t> &values) {
        const keel_tensor *t = blank(shape, KEEL_DTYPE_U8);
        for (int64_t r = 0; r < rows(t); ++r)
            backend().buffer_write(ctx_, t->buffer, row_offset(t, r),
                                   values.data() + r * shape.back(), row_bytes(t));
        return t;
    }

    Values read(const keel_tensor *t) {
        Values out;
        const auto n = static_cast<size_t>(t->shape[t->rank - 1]);
        std::vector<uint8_t> row(row_bytes(t));
        std::vector<float> values(n);
        for (int64_t r = 0; r < rows(t); ++r) {
            backend().buffer_read(ctx_, t->buffer, row_offset(t, r), row.data(), row.size());
            convert_to_f32(t->dtype, row.data(), values.data(), n);
            out.insert(out.end(), values.begin(), values.end());
        }
        return out;
    }
    Ints read_ints(const keel_tensor *t) {
        Ints out;
        Ints row(static_cast<size_t>(t->shape[t->rank - 1]));
        for (int64_t r = 0; r < rows(t); ++r) {
            backend().buffer_read(ctx_, t->buffer, row_offset(t, r), row.data(), 4 * row.size());
            out.insert(out.end(), row.begin(), row.end());
        }
        return out;
    }

  private:
    static int64_t rows(const keel_tensor *t) {
        int64_t n = 1;
        for (uint32_t i = 0; i + 1 < t->rank; ++i) n *= t->shape[i];
        return n;
    }
    static uint64_t row_bytes(const keel_tensor *t) {
        return keel_dtype_row_bytes(t->dtype, static_cast<uint64_t>(t->shape[t->rank - 1]));
    }
    static uint64_t row_offset(const keel_tensor *t, int64_t row) {
        uint64_t at = t->offset;
        for (uint32_t i = t->rank - 1; i-- > 0;) {
            at += static_cast<uint64_t>(row % t->shape[i] * t->stride[i]);
            row /= t->shape[i];
        }
        return at;
    }

    TestHost host_;
    keel_ctx *ctx_ = nullptr;
    std::deque<keel_tensor> tensors_;
};

// Returns args of an op that are zero except for the header.
template <typename Args> Args args_of(uint64_t features = 0) {
    Args a = {};
    a.h = KEEL_HEADER(Args);
    a.features = features;
    return a;
}

inline Values random_values(size_t n, uint32_t seed, double spread = 1.0) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal(0.0F, static_cast<float>(spread));
    Values out(n);
    // numbers that f32 can hold
    for (double &value : out) value = static_cast<double>(normal(rng));
    return out;
}

// Checks that the results differ from a float64 computation only by f32 rounding.
inline void require_close(const Values &got, const Values &want, double bound = 2e-7) {
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) {
        INFO("element " << i << ": " << got[i] << ", expected " << want[i]);
        if (std::isnan(want[i])) {
            REQUIRE(std::isnan(got[i]));
        } else if (std::isinf(want[i])) {
            REQUIRE(got[i] == want[i]);
        } else {
            REQUIRE(std::fabs(got[i] - want[i]) <= bound * (1 + std::fabs(want[i])));
        }
    }
}

// The cache of a layer with content for each head. Blocks have four slots and are in a random
// order.
struct BenchCache {
    keel_kv_view view = {};
    int64_t heads, dim, v_dim;
    std::vector<std::vector<Values>> k, v; // [head][slot]
    std::vector<Ints> positions;           // [head][slot]

    static constexpr int64_t block = 4;

    BenchCache(Bench &bench, const Ints &lengths, int64_t head_dim, int64_t v_head_dim,
               uint32_t seed, keel_dtype dtype = KEEL_DTYPE_F32, int64_t capacity = 16)
        : heads(static_cast<int64_t>(lengths.size())), dim(head_dim), v_dim(v_head_dim) {
        const int64_t per_head = capacity / block;
        const int64_t blocks = heads * per_head + 1;
        const double nan = std::nan("");
        Values k_arena(static_cast<size_t>(blocks * block * dim), nan),
            v_arena(static_cast<size_t>(blocks * block * v_dim), nan);
        Ints table, all_positions(static_cast<size_t>(heads * capacity), -1);
        for (int64_t h = 0; h < heads; ++h) {
            k.emplace_back();
            v.emplace_back();
            positions.emplace_back();
            for (int64_t b = 0; b < per_head; ++b)
                table.push_back(static_cast<int32_t>(blocks - 1 - (b * heads + h)));
            for (int64_t slot = 0; slot < lengths[static_cast<size_t>(h)]; ++slot) {
                const auto unique =
                    static_cast<uint32_t>(seed * 1000 + static_cast<uint32_t>(h * 100 + slot));
                k.back().push_back(random_values(static_cast<size_t>(dim), unique));
                v.back().push_back(random_values(static_cast<size_t>(v_dim), unique + 500));
                positions.back().push_back(static_cast<int32_t>(slot + slot / 3 + h));
                all_positions[static_cast<size_t>(h * capacity + slot)] = positions.back().back();
                const int64_t row =
                    table[static_cast<size_t>(h * per_head + slot / block)] * block + slot % block;
                std::copy(k.back().back().begin(), k.back().back().end(),
                          k_arena.begin() + row * dim);
                std::copy(v.back().back().begin(), v.back().back().end(),
                          v_arena.begin() + row * v_dim);
            }
        }
        view.h = KEEL_HEADER(keel_kv_view);
        view.k = bench.floats({blocks, block, dim}, k_arena, dtype);
        view.v = bench.floats({blocks, block, v_dim}, v_arena, dtype);
        view.block_table = bench.ints({heads, per_head}, table);
        view.lengths = bench.ints({heads}, lengths);
        view.positions = bench.ints({heads, capacity}, all_positions);
        view.block_slots = block;
        view.kv_heads = static_cast<uint32_t>(heads);
        view.max_length = capacity;
    }

    int64_t length(int64_t head) const {
        return static_cast<int64_t>(k[static_cast<size_t>(head)].size());
    }
    // Returns the current row of a slot in the arena.
    Values row(Bench &bench, const keel_tensor *arena, int64_t head, int64_t slot) const {
        const Ints table = bench.read_ints(view.block_table);
        const int64_t per_head = view.block_table->shape[1];
        const int64_t place =
            table[static_cast<size_t>(head * per_head + slot / block)] * block + slot % block;
        const Values all = bench.read(arena);
        const int64_t n = arena->shape[2];
        return {all.begin() + place * n, all.begin() + (place + 1) * n};
    }
    int32_t position(Bench &bench, int64_t head, int64_t slot) const {
        return bench.read_ints(
            view.positions)[static_cast<size_t>(head * view.positions->shape[1] + slot)];
    }
};

} // namespace keel::test
