#include "model/gguf_layout.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>
#include <utility>

namespace keel::gguf {
namespace {

constexpr std::string_view key_blocks = "keel.layout.blocks", key_block_layouts = "keel.layout.block_layouts",
                           key_tensors = "keel.layout.tensors",
                           key_tensor_blocks = "keel.layout.tensor_blocks",
                           key_tensor_types = "keel.layout.tensor_types",
                           key_tensor_rows = "keel.layout.tensor_rows",
                           key_tensor_cols = "keel.layout.tensor_cols";
constexpr uint64_t most_tensors = 1 << 17;
constexpr uint32_t i8_type = 24;

constexpr std::array<std::pair<uint32_t, keel_dtype>, 8> types = {{{ggml::f32, KEEL_DTYPE_F32},
                                                                   {ggml::f16, KEEL_DTYPE_F16},
                                                                   {ggml::bf16, KEEL_DTYPE_BF16},
                                                                   {ggml::q8_0, KEEL_DTYPE_Q8_0},
                                                                   {ggml::q4_0, KEEL_DTYPE_Q4_0},
                                                                   {ggml::q4_k, KEEL_DTYPE_Q4_K},
                                                                   {ggml::q5_k, KEEL_DTYPE_Q5_K},
                                                                   {ggml::q6_k, KEEL_DTYPE_Q6_K}}};

// The arrays of a file, of the right lengths.
class Arrays {
  public:
    explicit Arrays(const GgufFile &file)
        : file_(file), blocks(texts(key_blocks)), layouts(texts(key_block_layouts)),
          tensors(texts(key_tensors)), tensor_blocks(numbers(key_tensor_blocks, 0)),
          tensor_types(numbers(key_tensor_types, 0)), tensor_rows(numbers(key_tensor_rows, 1)),
          tensor_cols(numbers(key_tensor_cols, 1)) {
        same_size(key_block_layouts, layouts.size(), blocks.size());
        same_size(key_tensor_blocks, tensor_blocks.size(), tensors.size());
        same_size(key_tensor_types, tensor_types.size(), tensors.size());
        same_size(key_tensor_rows, tensor_rows.size(), tensors.size());
        same_size(key_tensor_cols, tensor_cols.size(), tensors.size());
    }

  private:
    std::vector<std::string_view> texts(std::string_view key) const {
        auto values = file_.texts(key, most_tensors);
        if (!values) missing(key);
        return *std::move(values);
    }
    std::vector<int64_t> numbers(std::string_view key, int64_t low) const {
        auto values = file_.integers(key, most_tensors, low, std::numeric_limits<int32_t>::max());
        if (!values) missing(key);
        return *std::move(values);
    }
    [[noreturn]] void missing(std::string_view key) const {
        file_.fail(key,
                   fmt::format("the key is missing, though there is '{}'; the file is damaged", layout_key));
    }
    void same_size(std::string_view key, size_t found, size_t expected) const {
        if (found != expected)
            file_.fail(key,
                       fmt::format("expected {} elements, found {}; the file is damaged", expected, found));
    }
    const GgufFile &file_;

  public:
    const std::vector<std::string_view> blocks, layouts, tensors;
    const std::vector<int64_t> tensor_blocks, tensor_types, tensor_rows, tensor_cols;
};

class LayoutReader {
  public:
    LayoutReader(const GgufFile &file, uint32_t index, ModelSource::Parts &parts)
        : file_(file), index_(index), parts_(parts), arrays_(file) {
        for (const GgufTensor &tensor : file.tensors())
            stored_.emplace(tensor.name, &tensor);
    }

    std::vector<std::string> run() {
        std::vector<std::string> names;
        size_t next = 0;
        for (size_t b = 0; b < arrays_.blocks.size(); ++b) {
            block(b, next);
            names.emplace_back(arrays_.blocks[b]);
        }
        if (next != arrays_.tensors.size())
            file_.fail(key_tensor_blocks, fmt::format("tensor {} is in no block, or out of order", next));
        return names;
    }

  private:
    // Block b and its matrices, which begin at number `next`.
    void block(size_t b, size_t &next) {
        const std::string name(arrays_.blocks[b]);
        const auto found = stored_.find(name);
        if (found == stored_.end())
            file_.fail(key_blocks,
                       fmt::format("there is no tensor '{}', or two blocks in it", printable(name)));
        const GgufTensor &tensor = *found->second;
        stored_.erase(found);
        if (tensor.type->id != i8_type || tensor.shape.size() != 1)
            refuse(name, fmt::format("expected I8 with one dimension, found {} of {}", tensor.type->name,
                                     shape_text(tensor.shape)));
        KeptBlock kept;
        kept.stored_name = name;
        kept.layout = arrays_.layouts[b];
        kept.file = index_;
        kept.offset = tensor.offset;
        kept.bytes = tensor.bytes;
        const bool is_name =
            !kept.layout.empty() && kept.layout.size() < 64 &&
            std::all_of(kept.layout.begin(), kept.layout.end(), [](char c) { return c > 0x20 && c < 0x7f; });
        if (!is_name)
            file_.fail(key_block_layouts, fmt::format("'{}' names no layout", printable(kept.layout)));
        const bool is_rows = kept.layout == rows_layout;
        const size_t first = next;
        uint64_t used = 0;
        for (; next < arrays_.tensors.size() && arrays_.tensor_blocks[next] == static_cast<int64_t>(b);
             ++next)
            kept.tensors.push_back(matrix(next, first, tensor, is_rows, used));
        if (next == first)
            refuse(name,
                   fmt::format("no tensor is in this block, or '{}' is out of order", key_tensor_blocks));
        if (is_rows && used != tensor.bytes)
            refuse(name, fmt::format("its rows are {} bytes, found {}", used, tensor.bytes));
        if (!is_rows) parts_.blocks.push_back(std::move(kept));
    }

    // Number i, whose rows begin `used` bytes behind the block's start where they are rows. Returns the name.
    std::string matrix(size_t i, size_t first, const GgufTensor &block, bool is_rows, uint64_t &used) {
        const std::string stored(arrays_.tensors[i]);
        const auto type = static_cast<uint32_t>(arrays_.tensor_types[i]);
        const keel_dtype dtype = keel_type(type);
        if (dtype == KEEL_DTYPE_NONE) refuse(stored, fmt::format("type {} cannot be kept in a layout", type));
        const int64_t rows = arrays_.tensor_rows[i], cols = arrays_.tensor_cols[i];
        if (arrays_.tensor_types[i] != arrays_.tensor_types[first] || cols != arrays_.tensor_cols[first])
            refuse(stored, "its type or number of columns is not that of the others in its block");
        if (cols % keel_dtype_block(dtype) != 0)
            refuse(stored, fmt::format("{} columns are no whole blocks of {}", cols, keel_dtype_name(dtype)));
        // Neither factor is above 2^31, so nothing wraps.
        const uint64_t bytes =
            static_cast<uint64_t>(rows) * keel_dtype_row_bytes(dtype, static_cast<uint64_t>(cols));
        if (bytes > block.bytes - used)
            refuse(stored, fmt::format("its {} bytes do not fit into block '{}' of {}", bytes,
                                       printable(block.name), block.bytes));
        TensorInfo tensor;
        tensor.name = folder_tensor_name(*parts_.config.architecture, stored);
        tensor.stored_name = stored;
        tensor.dtype = dtype;
        tensor.dtype_name = find_ggml_type(type)->name;
        tensor.shape = {rows, cols};
        tensor.file = index_;
        tensor.offset = block.offset + used;
        tensor.bytes = bytes;
        tensor.kept = is_rows ? 0 : static_cast<uint32_t>(parts_.blocks.size() + 1);
        used += bytes;
        parts_.tensors.push_back(tensor);
        return tensor.name;
    }

    [[noreturn]] void refuse(std::string_view tensor, std::string_view message) const {
        throw_error(ErrorKind::input, "{}: tensor '{}': {}; the file is damaged", file_.name(),
                    printable(tensor), message);
    }

    const GgufFile &file_;
    uint32_t index_;
    ModelSource::Parts &parts_;
    Arrays arrays_;
    std::unordered_map<std::string_view, const GgufTensor *> stored_;
};

} // namespace

keel_dtype keel_type(uint32_t ggml_type) {
    for (const auto &[stored, dtype] : types) {
        if (stored == ggml_type) return dtype;
    }
    return KEEL_DTYPE_NONE;
}

uint32_t stored_type(keel_dtype dtype) {
    for (const auto &[stored, type] : types) {
        if (type == dtype) return stored;
    }
    throw_error(ErrorKind::usage, "weights cannot be written as {}", keel_dtype_name(dtype));
}

void add_layout_metadata(const std::vector<BlockEntry> &blocks, GgufWriter &out) {
    if (blocks.empty()) return;
    std::vector<std::string> names, layouts, tensors;
    std::vector<int32_t> of_block, of_type, rows, cols;
    std::string made_for(rows_layout);
    for (const BlockEntry &block : blocks) {
        if (block.layout != rows_layout) made_for = block.layout;
        for (const BlockEntry::Matrix &matrix : block.matrices) {
            tensors.push_back(matrix.name);
            of_block.push_back(static_cast<int32_t>(names.size()));
            of_type.push_back(static_cast<int32_t>(matrix.type));
            rows.push_back(static_cast<int32_t>(matrix.rows));
            cols.push_back(static_cast<int32_t>(matrix.cols));
        }
        names.push_back(block.tensor);
        layouts.push_back(block.layout);
    }
    out.add(layout_key, made_for);
    out.add(key_blocks, names);
    out.add(key_block_layouts, layouts);
    out.add(key_tensors, tensors);
    out.add(key_tensor_blocks, of_block);
    out.add(key_tensor_types, of_type);
    out.add(key_tensor_rows, rows);
    out.add(key_tensor_cols, cols);
}

std::optional<int64_t> kept_rows(const GgufFile &file, std::string_view name) {
    if (!file.text(layout_key)) return std::nullopt;
    const Arrays arrays(file);
    const auto found = std::find(arrays.tensors.begin(), arrays.tensors.end(), name);
    if (found == arrays.tensors.end()) return std::nullopt;
    return arrays.tensor_rows[static_cast<size_t>(found - arrays.tensors.begin())];
}

std::vector<std::string> read_layout(const GgufFile &file, uint32_t index, ModelSource::Parts &parts) {
    if (!file.text(layout_key)) return {};
    return LayoutReader(file, index, parts).run();
}

} // namespace keel::gguf
