#pragma once

#include "device/buffer.hpp"

#include <keel/tensor.h>

#include <initializer_list>
#include <span>
#include <vector>

namespace keel {

// A view into a Buffer, which other views can share. It is a value and cheap to copy. A tensor
// without a buffer has only a shape, which is enough to plan an op. Shapes are [outermost, ...,
// innermost], as in keel/tensor.h.
class Tensor {
  public:
    Tensor() = default; // an empty tensor; c() returns NULL
    // A contiguous shape without memory.
    static Tensor shape(keel_dtype dtype, std::initializer_list<int64_t> dims);
    // A contiguous tensor at `offset` of a buffer.
    Tensor(BufferPtr buffer, uint64_t offset, keel_dtype dtype,
           std::initializer_list<int64_t> dims);
    // A contiguous tensor in a new buffer.
    static Tensor allocate(Device &device, keel_dtype dtype, std::initializer_list<int64_t> dims,
                           keel_buffer_kind kind = KEEL_BUFFER_DEVICE);

    // A tensor with the same shape and strides at `offset` of a buffer.
    Tensor at(BufferPtr buffer, uint64_t offset) const;

    const keel_tensor *c() const {
        return desc_.rank == 0 ? nullptr : &desc_;
    } // for args structs; valid while this object lives and does not move
    bool empty() const { return desc_.rank == 0; }
    keel_dtype dtype() const { return desc_.dtype; }
    uint32_t rank() const { return desc_.rank; }
    int64_t dim(uint32_t i) const { return desc_.shape[i]; }
    uint64_t offset() const { return desc_.offset; }
    const BufferPtr &buffer() const { return buffer_; }
    uint64_t bytes() const; // bytes of a contiguous tensor of this shape

    // A view of rows begin..begin+n-1 of the outermost dimension.
    Tensor rows(int64_t begin, int64_t n) const;
    // Columns begin..begin+n-1 of the innermost dimension. Block dtypes need whole blocks.
    Tensor columns(int64_t begin, int64_t n) const;
    // A view with other dimensions over the same elements. The innermost dimension can be split
    // ([m, heads * d] -> [m, heads, d]) for any outer strides. For every other change the tensor
    // must be contiguous.
    Tensor reshape(std::initializer_list<int64_t> dims) const;

    // Copy a contiguous tensor from or to the host. read() waits for the stream.
    void write(const void *src) const;
    void read(void *dst) const;
    template <typename T> std::vector<T> read() const {
        std::vector<T> out(bytes() / sizeof(T));
        read(out.data());
        return out;
    }

  private:
    keel_tensor desc_ = {KEEL_HEADER(keel_tensor)};
    BufferPtr buffer_;
};

// Bytes from the first element to the end of the last element, strides included. 0 if a dimension
// is 0.
uint64_t extent_bytes(const keel_tensor &tensor);
bool is_contiguous(const keel_tensor &tensor);

} // namespace keel
