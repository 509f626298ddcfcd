#pragma once

// Internal to core/model: matrices that a GGUF file keeps joined, as one backend laid them out (`keel quantize --layout native`).
//
// A block is a tensor of I8 with one dimension: bytes that mean nothing to who does not know the layout, so that other programs miss
// the matrices by name rather than compute with them. What they are stands in the metadata, arrays with an element for each block and
// for each matrix; matrices of a block stand next to each other, in the order of their rows.

#include "format/gguf_writer.hpp"
#include "model/gguf_model.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel::gguf {

// The layout that the core itself reads: rows one after the other, in the order that the graph wants them.
inline constexpr std::string_view rows_layout = "rows";

// The key that says that a file has blocks: what it was made for.
inline constexpr std::string_view layout_key = "keel.layout";

// A block as it is written.
struct BlockEntry {
    std::string tensor; // that holds it
    std::string layout;
    struct Matrix {
        std::string name; // GGUF's
        uint32_t type = 0;
        int64_t rows = 0, cols = 0;
    };
    std::vector<Matrix> matrices;
};

// Adds the metadata; nothing if there are no blocks.
void add_layout_metadata(const std::vector<BlockEntry> &blocks, GgufWriter &out);

// Adds a file's blocks and the matrices in them to `parts`; `index` is the file's there. Returns the names of the tensors that are blocks.
// Throws Error(input) where keys, sizes and tensors do not go together.
std::vector<std::string> read_layout(const GgufFile &file, uint32_t index, ModelSource::Parts &parts);

// Rows of the matrix of that (GGUF's) name in a file's blocks, nullopt if none holds it.
std::optional<int64_t> kept_rows(const GgufFile &file, std::string_view name);

// The dtype of a GGML type that Keel computes with; KEEL_DTYPE_NONE: of none.
keel_dtype keel_type(uint32_t ggml_type);
// The other way round; throws Error(usage) where there is none.
uint32_t stored_type(keel_dtype dtype);

} // namespace keel::gguf
