#include "conformance/tensor.hpp"

#include "conformance/k_quantizer.hpp"
#include "numbers/convert.hpp"

#include <cmath>
#include <cstring>

namespace keel::conformance {
namespace {

constexpr uint64_t margin = 128; // bytes before and after the elements

bool is_integer(keel_dtype t) { return t == KEEL_DTYPE_I32 || t == KEEL_DTYPE_U32; }

} // namespace

int64_t Tensor::rows() const {
    int64_t n = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
    return n;
}

uint64_t Tensor::row_offset(int64_t row) const {
    uint64_t at = offset;
    for (size_t i = shape.size() - 1; i-- > 0;) {
        at += static_cast<uint64_t>(row % shape[i] * stride[i]);
        row /= shape[i];
    }
    return at;
}

keel_tensor Tensor::describe(keel_buffer *buffer) const {
    keel_tensor t = {};
    t.h = KEEL_HEADER(keel_tensor);
    t.buffer = buffer;
    t.offset = offset;
    t.dtype = dtype;
    t.rank = static_cast<uint32_t>(shape.size());
    for (size_t i = 0; i < shape.size(); ++i) t.shape[i] = shape[i];
    for (size_t i = 0; i < stride.size(); ++i) t.stride[i] = stride[i];
    // The innermost stride has an invalid value, because ops must not read it.
    t.stride[shape.size() - 1] = INT64_MIN / 2;
    return t;
}

std::vector<double> Tensor::values_of(const std::vector<uint8_t> &other_image) const {
    std::vector<double> out;
    std::vector<float> row(static_cast<size_t>(row_length()));
    for (int64_t r = 0; r < rows(); ++r) {
        const uint8_t *at = other_image.data() + row_offset(r);
        for (int64_t i = 0; i < row_length() && is_integer(dtype); ++i) {
            int32_t value;
            std::memcpy(&value, at + 4 * i, 4);
            out.push_back(value);
        }
        if (is_integer(dtype)) continue;
        convert_to_f32(dtype, at, row.data(), row.size());
        out.insert(out.end(), row.begin(), row.end());
    }
    return out;
}

std::vector<int32_t> Tensor::integers_of(const std::vector<uint8_t> &other_image) const {
    std::vector<int32_t> out;
    for (const double value : values_of(other_image)) out.push_back(static_cast<int32_t>(value));
    return out;
}

void Tensor::set(const std::vector<float> &values) {
    if (keel_dtype_weights_only(dtype) != 0) {
        for (int64_t r = 0; r < rows(); ++r)
            test::KQuantizer::quantize(dtype, values.data() + r * row_length(),
                                       static_cast<size_t>(row_length()),
                                       image.data() + row_offset(r));
        return;
    }
    for (int64_t r = 0; r < rows(); ++r) {
        convert_from_f32(dtype, values.data() + r * row_length(), image.data() + row_offset(r),
                         static_cast<size_t>(row_length()));
    }
}

void Tensor::set_integers(const std::vector<int32_t> &values) {
    for (int64_t r = 0; r < rows(); ++r) {
        if (row_length() == 0) continue;
        std::memcpy(image.data() + row_offset(r), values.data() + r * row_length(),
                    4 * static_cast<size_t>(row_length()));
    }
}

Tensor Tensor::absolute() const {
    Tensor t = blank(KEEL_DTYPE_F32, shape);
    std::vector<float> magnitudes;
    for (const double value : values())
        magnitudes.push_back(static_cast<float>(std::isfinite(value) ? std::fabs(value) : 0.0));
    t.set(magnitudes);
    return t;
}

Tensor blank(keel_dtype dtype, std::vector<int64_t> shape, Layout layout) {
    Tensor t;
    t.dtype = dtype;
    t.shape = std::move(shape);
    t.stride.assign(t.shape.size() - 1, 0);
    const auto unit = static_cast<int64_t>(keel_dtype_bytes(dtype));
    auto span = static_cast<int64_t>(t.row_bytes());
    for (size_t i = t.shape.size() - 1; i-- > 0;) {
        t.stride[i] = span + layout.gap * unit;
        span = t.stride[i] * t.shape[i];
    }
    t.offset = margin + static_cast<uint64_t>(layout.shift * unit);
    t.image.assign(t.offset + static_cast<uint64_t>(span) + margin, 0xFF);
    return t;
}

Tensor random_tensor(Rng &rng, keel_dtype dtype, std::vector<int64_t> shape, Layout layout,
                     float spread) {
    Tensor t = blank(dtype, std::move(shape), layout);
    std::vector<float> values(static_cast<size_t>(t.elements()));
    for (float &value : values) value = spread * rng.normal();
    for (size_t i = 0; i < values.size() / 64; ++i) {
        float &value = values[rng() % values.size()];
        const float odd[] = {0.0F, -0.0F, 1e-41F, -1e-39F, 6e-8F};
        value = odd[rng() % 5];
    }
    t.set(values);
    return t;
}

Tensor integer_tensor(std::vector<int64_t> shape, const std::vector<int32_t> &values,
                      Layout layout) {
    Tensor t = blank(KEEL_DTYPE_I32, std::move(shape), layout);
    t.set_integers(values);
    return t;
}

std::string shape_text(const Tensor &t) {
    std::string text = keel_dtype_name(t.dtype);
    text += '[';
    for (size_t i = 0; i < t.shape.size(); ++i) {
        if (i != 0) text += ',';
        text += std::to_string(t.shape[i]);
    }
    return text + "]";
}

} // namespace keel::conformance
