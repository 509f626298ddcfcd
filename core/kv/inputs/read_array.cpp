#include "kv/inputs/read_array.hpp"

namespace keel {

keel_buffer_kind read_back_kind(const Device &device, keel_buffer_kind placement) {
    if (device.device_info().type == KEEL_DEVICE_CPU) return KEEL_BUFFER_HOST_VISIBLE;
    return placement;
}

const float *read_floats(const Tensor &tensor, std::vector<float> &copy) {
    const Buffer &buffer = *tensor.buffer();
    if (const auto *bytes = static_cast<const std::byte *>(buffer.map())) {
        buffer.device().stream().wait();
        return reinterpret_cast<const float *>(bytes + tensor.offset());
    }
    copy.resize(tensor.bytes() / sizeof(float));
    tensor.read(copy.data());
    return copy.data();
}

Tensor ReadArray::room(Device &device, keel_buffer_kind placement, int64_t rows, int64_t columns) {
    const uint64_t bytes = static_cast<uint64_t>(rows * columns) * sizeof(float);
    if (device_.empty() || device_.bytes() < bytes) {
        device_ = {};
        device_ = Tensor::allocate(device, KEEL_DTYPE_F32, {rows * columns},
                                   read_back_kind(device, placement));
    }
    last_ = Tensor(device_.buffer(), 0, KEEL_DTYPE_F32, {rows, columns});
    return last_;
}

const float *ReadArray::read(int64_t first, int64_t rows) {
    return read_floats(last_.rows(first, rows), host_);
}

} // namespace keel
