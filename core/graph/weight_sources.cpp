#include "graph/weight_sources.hpp"

#include "base/error.hpp"

namespace keel {

std::shared_ptr<PageBuffer> ConversionMemory::take(uint64_t bytes, const std::string &what) {
    for (const auto &buffer : buffers_) {
        if (buffer.use_count() == 1 && buffer->size() >= bytes) return buffer;
    }
    // limit for the parts of one weight; a buffer that a device reads in place leaves the list
    constexpr size_t most = 8;
    // drops the free buffers, because all of them are too small
    std::erase_if(buffers_, [](const auto &buffer) { return buffer.use_count() == 1; });
    if (buffers_.size() >= most) buffers_.erase(buffers_.begin());
    return buffers_.emplace_back(std::make_shared<PageBuffer>(bytes, what));
}

namespace {

// Returns a matrix in the type `dtype`: in place in its mapping, or converted to `memory`, at `at`.
// Throws as ModelSource::convert() does.
WeightSource matrix_source(const std::shared_ptr<const ModelSource> &source,
                           const TensorInfo &tensor, keel_dtype dtype, const ParallelFor &parallel,
                           const std::shared_ptr<PageBuffer> &memory, uint64_t at) {
    const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
    const MappedFile &file = source->file(tensor);
    if (source->in_place(tensor, dtype)) {
        return {source, file.bytes().data(), file.size(), tensor.offset, dtype, rows, cols};
    }
    const std::string what = fmt::format("{}: {}", file.path(), tensor.name);
    if (cols % keel_dtype_block(dtype) != 0) {
        throw_error(
            ErrorKind::input,
            "{}: rows of {} elements cannot be stored as {}: expected a multiple of {} elements",
            what, cols, keel_dtype_name(dtype), keel_dtype_block(dtype));
    }
    std::byte *data = memory->data();
    source->convert(tensor, dtype, data + at, parallel);
    return {std::shared_ptr<const void>(memory, data), data, memory->size(), at, dtype, rows, cols};
}

} // namespace

std::vector<WeightSource> weight_sources(const std::shared_ptr<const ModelSource> &source,
                                         const std::vector<const TensorInfo *> &tensors,
                                         keel_dtype dtype, const ParallelFor &parallel,
                                         ConversionMemory *reused) {
    constexpr uint64_t align = 64;
    std::vector<uint64_t> at;
    uint64_t bytes = 0;
    for (const TensorInfo *tensor : tensors) {
        at.push_back(bytes);
        if (source->in_place(*tensor, dtype)) continue;
        bytes += static_cast<uint64_t>(tensor->shape[0]) *
                 keel_dtype_row_bytes(dtype, static_cast<uint64_t>(tensor->shape[1]));
        bytes = (bytes + align - 1) / align * align;
    }
    std::shared_ptr<PageBuffer> memory;
    if (bytes > 0) {
        const TensorInfo &first = *tensors.front();
        const std::string what = fmt::format("{}: {}", source->file(first).path(), first.name);
        memory = reused != nullptr ? reused->take(bytes, what)
                                   : std::make_shared<PageBuffer>(bytes, what);
    }
    std::vector<WeightSource> sources;
    for (size_t i = 0; i < tensors.size(); ++i)
        sources.push_back(matrix_source(source, *tensors[i], dtype, parallel, memory, at[i]));
    return sources;
}

} // namespace keel
