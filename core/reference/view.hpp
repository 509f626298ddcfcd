#pragma once

#include "reference/context.hpp"

#include <array>
#include <cstring>

namespace keel::reference {

// One row of a tensor, as numbers.
using Row = std::vector<double>;

// A tensor with its memory: up to three outer dimensions with strides, and a contiguous innermost
// dimension of n elements. row(i) takes an index of the dimension next to the innermost dimension.
// row(i, j) takes the indices of the two dimensions next to the innermost dimension.
struct View {
    std::byte *data = nullptr; // address of element 0
    keel_dtype dtype = KEEL_DTYPE_NONE;
    std::array<int64_t, 3> outer = {1, 1, 1};
    std::array<int64_t, 3> stride = {0, 0, 0}; // in bytes
    int64_t n = 0;

    std::byte *row(int64_t i) const { return data + i * stride[2]; }
    std::byte *row(int64_t i, int64_t j) const { return data + i * stride[1] + j * stride[2]; }
    std::byte *row(int64_t i, int64_t j, int64_t k) const {
        return data + i * stride[0] + j * stride[1] + k * stride[2];
    }
    uint64_t row_bytes() const { return keel_dtype_row_bytes(dtype, static_cast<uint64_t>(n)); }

    // Calls body(i, j, k) for each row.
    template <typename Body> void each_row(const Body &body) const {
        for (int64_t i = 0; i < outer[0]; ++i)
            for (int64_t j = 0; j < outer[1]; ++j)
                for (int64_t k = 0; k < outer[2]; ++k) body(i, j, k);
    }

    int32_t integer(int64_t place) const { return element<int32_t>(data, place); }
    int32_t integer(int64_t i, int64_t place) const { return element<int32_t>(row(i), place); }
    double number(int64_t place) const { return element<float>(data, place); } // for f32 only
    double number(int64_t i, int64_t place) const { return element<float>(row(i), place); }

    template <typename T> static T element(const std::byte *at, int64_t place) {
        T value;
        std::memcpy(&value, at + place * static_cast<int64_t>(sizeof(T)), sizeof(T));
        return value;
    }
    template <typename T> static void set(std::byte *at, int64_t place, T value) {
        std::memcpy(at + place * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
    }
};

// Makes the view of a checked tensor. Throws if the tensor has no buffer or does not fit into its
// buffer.
View bind(const keel_tensor *t);

// load() reads n elements of a row as numbers. store() rounds numbers to f32, then to the dtype.
Row load(const std::byte *at, keel_dtype dtype, int64_t n);
inline Row load(const View &view, const std::byte *at) { return load(at, view.dtype, view.n); }
void store(std::byte *at, keel_dtype dtype, const Row &values);
inline void store(const View &view, std::byte *at, const Row &values) {
    store(at, view.dtype, values);
}

double dot(const Row &a, const Row &b);

// A tensor of positions: [m] or [m, kv_heads].
class Positions {
  public:
    explicit Positions(const keel_tensor *t) : view_(bind(t)), per_head_(t->rank == 2) {}
    int32_t at(int64_t token, int64_t kv_head) const {
        return per_head_ ? view_.integer(token, kv_head) : view_.integer(token);
    }

  private:
    View view_;
    bool per_head_;
};

// One layer's cache with its memory.
class Cache {
  public:
    explicit Cache(const keel_kv_view &kv);

    int64_t heads() const { return heads_; }
    int64_t head_dim() const { return k_.n; }
    int64_t v_head_dim() const { return v_.n; }
    keel_dtype k_dtype() const { return k_.dtype; }
    keel_dtype v_dtype() const { return v_.dtype; }
    uint64_t k_bytes() const { return k_.row_bytes(); }
    uint64_t v_bytes() const { return v_.row_bytes(); }
    // Returns the number of slots in use. Throws if the length is negative or above max_length.
    int64_t length(int64_t head) const;
    // Returns the row of a slot. Throws if the slot has no block.
    std::byte *k_row(int64_t head, int64_t slot) const { return row(k_, head, slot); }
    std::byte *v_row(int64_t head, int64_t slot) const { return row(v_, head, slot); }
    Row k(int64_t head, int64_t slot) const { return load(k_, k_row(head, slot)); }
    Row v(int64_t head, int64_t slot) const { return load(v_, v_row(head, slot)); }
    int32_t position(int64_t head, int64_t slot) const;
    void set_position(int64_t head, int64_t slot, int32_t position) const;

  private:
    std::byte *row(const View &arena, int64_t head, int64_t slot) const;

    View k_, v_, table_, lengths_, positions_;
    int64_t block_slots_;
    int64_t heads_;
    int64_t max_length_;
};

} // namespace keel::reference
