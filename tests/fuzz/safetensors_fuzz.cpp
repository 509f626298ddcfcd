#include "base/error.hpp"
#include "model/safetensors.hpp"

#include <cstdlib>

namespace {

void read_file(std::span<const std::byte> file) {
    const keel::SafetensorsHeader header = keel::parse_safetensors(file, "fuzz");
    uint64_t end_of_last = 8;
    for (const keel::TensorInfo &tensor : header.tensors) {
        if (tensor.offset < end_of_last || tensor.bytes > file.size() - tensor.offset) std::abort();
        end_of_last = tensor.offset + tensor.bytes;
        if (tensor.dtype == KEEL_DTYPE_NONE) continue;
        const auto elements = static_cast<uint64_t>(tensor.elements());
        if (keel_dtype_row_bytes(tensor.dtype, elements) != tensor.bytes) std::abort();
    }
}

} // namespace

// Input: any bytes. They give either a keel::Error, or tensors that are inside the file, one after
// the other. The same bytes are also read as an index of shards, which must not name a file outside
// its folder.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::span bytes(data, size);
    try {
        read_file(std::as_bytes(bytes));
    } catch (const keel::Error &) {
    }
    try {
        const std::string_view text(reinterpret_cast<const char *>(data), size);
        for (const std::string &file : keel::parse_shard_index(text, "fuzz").files) {
            if (file.find('/') != std::string::npos || file.front() == '.') std::abort();
        }
    } catch (const keel::Error &) {
    }
    return 0;
}
