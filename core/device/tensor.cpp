#include "device/tensor.hpp"

#include "base/error.hpp"
#include "device/device.hpp"

#include <algorithm>
#include <fmt/ranges.h>
#include <iterator>

namespace keel {
namespace {

void set_contiguous(keel_tensor &t, std::initializer_list<int64_t> dims) {
    if (dims.size() == 0 || dims.size() > KEEL_MAX_RANK)
        throw_error(ErrorKind::internal, "expected a tensor of rank 1 to 4, found rank {}",
                    dims.size());
    t.rank = static_cast<uint32_t>(dims.size());
    std::fill(std::begin(t.shape), std::end(t.shape), 0);
    std::fill(std::begin(t.stride), std::end(t.stride), 0);
    std::copy(dims.begin(), dims.end(), t.shape);
    const int64_t block = keel_dtype_block(t.dtype), width = t.shape[t.rank - 1];
    if (block == 0 || width % block != 0 ||
        std::any_of(dims.begin(), dims.end(), [](int64_t d) { return d < 0; }))
        throw_error(
            ErrorKind::internal,
            "found a {} tensor of shape [{}]; expected sizes of 0 or more and rows of whole blocks",
            keel_dtype_name(t.dtype), fmt::join(dims, ", "));
    int64_t stride = 0;
    bool fits = !__builtin_mul_overflow(width / block, int64_t{keel_dtype_bytes(t.dtype)}, &stride);
    for (uint32_t i = t.rank - 1; i-- > 0;) {
        t.stride[i] = stride;
        fits = !__builtin_mul_overflow(stride, t.shape[i], &stride) && fits;
    }
    if (!fits) {
        throw_error(ErrorKind::resource, "a {} tensor of shape [{}] is larger than any memory",
                    keel_dtype_name(t.dtype), fmt::join(dims, ", "));
    }
}

void require_dims(const keel_tensor &t, const char *what) {
    if (t.rank == 0) throw_error(ErrorKind::internal, "{}: the tensor is empty", what);
}

} // namespace

uint64_t extent_bytes(const keel_tensor &t) {
    if (t.rank == 0 || t.rank > KEEL_MAX_RANK) return 0;
    uint64_t bytes = keel_dtype_row_bytes(t.dtype, static_cast<uint64_t>(t.shape[t.rank - 1]));
    if (t.shape[t.rank - 1] == 0) return 0;
    for (uint32_t i = 0; i + 1 < t.rank; ++i) {
        if (t.shape[i] == 0) return 0;
        bytes += static_cast<uint64_t>(t.shape[i] - 1) * static_cast<uint64_t>(t.stride[i]);
    }
    return bytes;
}

bool is_contiguous(const keel_tensor &t) {
    uint64_t stride = keel_dtype_row_bytes(t.dtype, static_cast<uint64_t>(t.shape[t.rank - 1]));
    for (uint32_t i = t.rank - 1; i-- > 0;) {
        if (t.shape[i] > 1 && static_cast<uint64_t>(t.stride[i]) != stride) return false;
        stride *= static_cast<uint64_t>(t.shape[i]);
    }
    return true;
}

Tensor Tensor::shape(keel_dtype dtype, std::initializer_list<int64_t> dims) {
    Tensor t;
    t.desc_.dtype = dtype;
    set_contiguous(t.desc_, dims);
    return t;
}

Tensor::Tensor(BufferPtr buffer, uint64_t offset, keel_dtype dtype,
               std::initializer_list<int64_t> dims)
    : Tensor(shape(dtype, dims).at(std::move(buffer), offset)) {}

Tensor Tensor::at(BufferPtr buffer, uint64_t offset) const {
    if (buffer == nullptr) throw_error(ErrorKind::internal, "the tensor has no buffer");
    if (offset > buffer->size() || extent_bytes(desc_) > buffer->size() - offset) {
        throw_error(ErrorKind::internal,
                    "a tensor of {} bytes at offset {} does not fit into its buffer of {} bytes",
                    bytes(), offset, buffer->size());
    }
    Tensor t(*this);
    t.desc_.buffer = buffer->handle();
    t.desc_.offset = offset;
    t.buffer_ = std::move(buffer);
    return t;
}

Tensor Tensor::allocate(Device &device, keel_dtype dtype, std::initializer_list<int64_t> dims,
                        keel_buffer_kind kind) {
    return Tensor(device.allocate(shape(dtype, dims).bytes(), kind), 0, dtype, dims);
}

uint64_t Tensor::bytes() const {
    if (desc_.rank == 0) return 0;
    uint64_t rows = 1;
    for (uint32_t i = 0; i + 1 < desc_.rank; ++i) rows *= static_cast<uint64_t>(desc_.shape[i]);
    return rows *
           keel_dtype_row_bytes(desc_.dtype, static_cast<uint64_t>(desc_.shape[desc_.rank - 1]));
}

Tensor Tensor::rows(int64_t begin, int64_t n) const {
    require_dims(desc_, "rows");
    if (begin < 0 || n < 0 || begin > desc_.shape[0] || n > desc_.shape[0] - begin)
        throw_error(ErrorKind::internal,
                    "rows(): {} rows from row {} are not part of a tensor with {} rows", n, begin,
                    desc_.shape[0]);
    Tensor t(*this);
    const int64_t stride =
        desc_.rank == 1 ? static_cast<int64_t>(keel_dtype_bytes(desc_.dtype)) : desc_.stride[0];
    if (desc_.rank == 1 && keel_dtype_block(desc_.dtype) != 1)
        throw_error(ErrorKind::internal,
                    "rows(): a tensor of rank 1 and a block type cannot be cut");
    t.desc_.offset += static_cast<uint64_t>(begin * stride);
    t.desc_.shape[0] = n;
    return t;
}

Tensor Tensor::columns(int64_t begin, int64_t n) const {
    require_dims(desc_, "columns");
    const int64_t block = keel_dtype_block(desc_.dtype);
    const int64_t width = desc_.shape[desc_.rank - 1];
    if (begin < 0 || n < 0 || begin > width || n > width - begin || begin % block != 0 ||
        n % block != 0) {
        throw_error(ErrorKind::internal,
                    "columns(): {} columns from column {} are not whole blocks of a {} tensor with "
                    "{} columns",
                    n, begin, keel_dtype_name(desc_.dtype), width);
    }
    Tensor t(*this);
    t.desc_.offset += keel_dtype_row_bytes(desc_.dtype, static_cast<uint64_t>(begin));
    t.desc_.shape[desc_.rank - 1] = n;
    return t;
}

Tensor Tensor::reshape(std::initializer_list<int64_t> dims) const {
    require_dims(desc_, "reshape");
    Tensor t(*this);
    set_contiguous(t.desc_, dims);
    int64_t before = 1, after = 1;
    for (uint32_t i = 0; i < desc_.rank; ++i) before *= desc_.shape[i];
    for (uint32_t i = 0; i < t.desc_.rank; ++i) after *= t.desc_.shape[i];
    if (before != after)
        throw_error(ErrorKind::internal,
                    "reshape(): the tensor has {} elements, but the new shape has {} elements",
                    before, after);
    if (is_contiguous(desc_)) return t;
    // [m, n] with padded rows becomes [m, a, b]; the rows keep their stride.
    if (desc_.rank == 2 && t.desc_.rank >= 2 && t.desc_.shape[0] == desc_.shape[0]) {
        t.desc_.stride[0] = desc_.stride[0];
        return t;
    }
    throw_error(ErrorKind::internal,
                "reshape(): expected a contiguous tensor, found a strided one");
}

void Tensor::write(const void *src) const {
    require_dims(desc_, "a host write");
    if (buffer_ == nullptr)
        throw_error(ErrorKind::internal, "the host cannot write to a tensor that has no memory");
    if (!is_contiguous(desc_))
        throw_error(ErrorKind::internal, "the host cannot write to a strided tensor");
    buffer_->write(desc_.offset, src, bytes());
}

void Tensor::read(void *dst) const {
    require_dims(desc_, "a host read");
    if (buffer_ == nullptr)
        throw_error(ErrorKind::internal, "the host cannot read a tensor that has no memory");
    if (!is_contiguous(desc_))
        throw_error(ErrorKind::internal, "the host cannot read a strided tensor");
    buffer_->read(desc_.offset, dst, bytes());
}

} // namespace keel
