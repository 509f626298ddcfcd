#include "base/error.hpp"
#include "format/gguf.hpp"
#include "model/gguf_model.hpp"

#include <algorithm>
#include <cstdlib>

namespace {

using keel::GgufFile;

// Checks that tensors are inside the file, aligned, and do not overlap.
void check_tensors(const GgufFile &file) {
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    for (const keel::GgufTensor &tensor : file.tensors()) {
        if (tensor.offset > file.bytes().size() ||
            tensor.bytes > file.bytes().size() - tensor.offset)
            std::abort();
        uint64_t elements = 1;
        for (const int64_t size : tensor.shape) elements *= static_cast<uint64_t>(size);
        if (elements / tensor.type->block * tensor.type->bytes != tensor.bytes) std::abort();
        ranges.emplace_back(tensor.offset, tensor.offset + tensor.bytes);
    }
    std::sort(ranges.begin(), ranges.end());
    for (size_t i = 1; i < ranges.size(); ++i)
        if (ranges[i].first < ranges[i - 1].second) std::abort();
}

template <typename Read> void try_read(Read read) {
    try {
        read();
    } catch (const keel::Error &) {
    }
}

// Reads every key in every possible way.
void read_keys(const GgufFile &file) {
    for (const keel::GgufEntry &entry : file.entries()) {
        if (file.describe(entry).empty() || file.raw(entry).size() != entry.bytes) std::abort();
        try_read([&] { (void)file.text(entry.key); });
        try_read([&] { (void)file.integer(entry.key); });
        try_read([&] { (void)file.number(entry.key, -1e300, 1e300); });
        try_read([&] { (void)file.boolean(entry.key); });
        try_read([&] { (void)file.texts(entry.key, 1 << 20); });
        try_read([&] { (void)file.integers(entry.key, 1 << 20); });
        try_read([&] { (void)file.numbers(entry.key, 1 << 20); });
    }
}

} // namespace

// Input: any bytes. They give either a keel::Error or a file. In a file, tensors must be at valid
// places, all keys can be read, and the model is either valid or refused.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try_read([&] {
        const GgufFile file(std::as_bytes(std::span(data, size)), "fuzz");
        check_tensors(file);
        read_keys(file);
        const keel::ModelConfig config = keel::gguf::read_config({&file, 1});
        if (config.architecture == nullptr || config.parameter_count() > (uint64_t{1} << 42))
            std::abort();
        for (const keel::GgufTensor &tensor : file.tensors()) {
            const std::string name =
                keel::gguf::folder_tensor_name(*config.architecture, tensor.name);
            (void)keel::gguf::stored_tensor_name(*config.architecture, name);
        }
    });
    return 0;
}
