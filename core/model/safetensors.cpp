#include "model/safetensors.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "format/ggml_type.hpp"
#include "platform/mapped_file.hpp"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <limits>
#include <tuple>

namespace keel {
namespace {

constexpr uint64_t max_header = 100'000'000; // the most bytes of a header; the reference
                                             // implementation has the same limit
constexpr size_t max_rank = 8;
// Depth: header, tensor, shape. Values: a matrix has 8 values, so a file may have 125,000 matrices.
constexpr JsonLimits header_limits{max_header, 4, 1'000'000};

struct DtypeRow {
    std::string_view name;
    keel_dtype dtype;
    uint32_t bytes;
};

constexpr std::array dtypes = {
    DtypeRow{"F32", KEEL_DTYPE_F32, 4},
    DtypeRow{"F16", KEEL_DTYPE_F16, 2},
    DtypeRow{"BF16", KEEL_DTYPE_BF16, 2},
    DtypeRow{"I32", KEEL_DTYPE_I32, 4},
    DtypeRow{"U32", KEEL_DTYPE_U32, 4},
    DtypeRow{"U8", KEEL_DTYPE_U8, 1},
    DtypeRow{"I8", KEEL_DTYPE_I8, 1},
    DtypeRow{"F8_E5M2", KEEL_DTYPE_F8E5M2, 1},
    DtypeRow{"F8_E4M3", KEEL_DTYPE_F8E4M3, 1},
    // Types with which Keel does not compute. Their sizes are known, so Keel checks the sizes of
    // such tensors.
    DtypeRow{"BOOL", KEEL_DTYPE_NONE, 1},
    DtypeRow{"I16", KEEL_DTYPE_NONE, 2},
    DtypeRow{"U16", KEEL_DTYPE_NONE, 2},
    DtypeRow{"F64", KEEL_DTYPE_NONE, 8},
    DtypeRow{"I64", KEEL_DTYPE_NONE, 8},
    DtypeRow{"U64", KEEL_DTYPE_NONE, 8},
    DtypeRow{"C64", KEEL_DTYPE_NONE, 8},
};

const DtypeRow *find_dtype(std::string_view name) {
    const auto found = std::find_if(dtypes.begin(), dtypes.end(),
                                    [&](const DtypeRow &row) { return row.name == name; });
    return found == dtypes.end() ? nullptr : &*found;
}

// Reads the header of one file. Holds the data that every error needs.
class HeaderReader {
  public:
    HeaderReader(std::span<const std::byte> file, std::string_view name)
        : file_(file), name_(name) {}

    SafetensorsHeader read() {
        const std::string_view text = header_text();
        const JsonDocument document(text, fmt::format("{}: header", name_), header_limits, 0);
        SafetensorsHeader header;
        for (const auto &[key, value] : document.object().members()) {
            if (key == "__metadata__") {
                read_metadata(value, header);
            } else {
                header.tensors.push_back(read_tensor(std::string(key), value));
            }
        }
        check_overlap(header.tensors);
        return header;
    }

  private:
    std::string_view header_text() {
        if (file_.size() < 8) {
            throw_error(ErrorKind::input,
                        "{}: expected a safetensors file, which has at least 8 bytes, found {}",
                        name_, file_.size());
        }
        uint64_t length = 0;
        for (size_t i = 0; i < 8; ++i) length |= std::to_integer<uint64_t>(file_[i]) << (8 * i);
        const uint64_t rest = file_.size() - 8;
        if (length > max_header) {
            throw_error(
                ErrorKind::input,
                "{}: header length: expected at most {}, found {}; is this a safetensors file?",
                name_, max_header, length);
        }
        if (length > rest) {
            throw_error(ErrorKind::input,
                        "{}: header length: expected {} bytes, but only {} bytes follow; the file "
                        "is cut short",
                        name_, length, rest);
        }
        data_start_ = 8 + length;
        return {reinterpret_cast<const char *>(file_.data()) + 8, static_cast<size_t>(length)};
    }

    static void read_metadata(const JsonNode &value, SafetensorsHeader &header) {
        for (const auto &[key, text] : value.members())
            header.metadata.emplace_back(key, text.text());
    }

    TensorInfo read_tensor(const std::string &name, const JsonNode &value) const {
        TensorInfo tensor;
        tensor.name = name;
        tensor.dtype_name = printable(value.at("dtype").text(), 20);
        read_shape(tensor, value.at("shape"));
        read_offsets(tensor, value.at("data_offsets"));
        const DtypeRow *row = find_dtype(tensor.dtype_name);
        if (row == nullptr)
            return tensor; // the type is unknown: the tensor is listed, but using it is an error
        tensor.dtype = row->dtype;
        check_size(tensor, row->bytes);
        return tensor;
    }

    static void read_shape(TensorInfo &tensor, const JsonNode &shape) {
        for (size_t i = 0; i < shape.size(max_rank); ++i)
            tensor.shape.push_back(shape.element(i).integer(0, INT64_MAX));
        // If a dimension is 0, every product fits. So the check multiplies only the other
        // dimensions.
        int64_t product = 1;
        for (const int64_t dimension : tensor.shape) {
            if (__builtin_mul_overflow(product, std::max<int64_t>(dimension, 1), &product)) {
                shape.fail(fmt::format("{}: the number of elements does not fit into 64 bits",
                                       shape_text(tensor.shape)));
            }
        }
    }

    void read_offsets(TensorInfo &tensor, const JsonNode &offsets) const {
        if (!offsets.is_array() || offsets.size() != 2) offsets.expected("[begin, end]");
        const uint64_t begin = offsets.element(0).natural(0, INT64_MAX);
        const uint64_t end = offsets.element(1).natural(0, INT64_MAX);
        const uint64_t size = file_.size() - data_start_;
        if (begin > end) offsets.fail(fmt::format("begin {} is larger than end {}", begin, end));
        if (end > size) {
            offsets.fail(fmt::format(
                "end {} is larger than the file's {} data bytes; the file is cut short or damaged",
                end, size));
        }
        tensor.offset = data_start_ + begin;
        tensor.bytes = end - begin;
    }

    void check_size(const TensorInfo &tensor, uint32_t element_bytes) const {
        uint64_t expected = 0;
        const bool overflow = __builtin_mul_overflow(static_cast<uint64_t>(tensor.elements()),
                                                     element_bytes, &expected);
        if (overflow || expected != tensor.bytes) {
            fail(tensor.name,
                 fmt::format("shape {} of {} needs {} bytes, data_offsets give {}",
                             shape_text(tensor.shape), tensor.dtype_name,
                             overflow ? "too many" : std::to_string(expected), tensor.bytes));
        }
    }

    // Sorts by place in the file. Tensors that share bytes are refused, because the file is damaged
    // or hostile.
    void check_overlap(std::vector<TensorInfo> &tensors) const {
        std::sort(tensors.begin(), tensors.end(), [](const TensorInfo &a, const TensorInfo &b) {
            return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
        });
        for (size_t i = 1; i < tensors.size(); ++i) {
            const TensorInfo &before = tensors[i - 1];
            if (tensors[i].offset < before.offset + before.bytes) {
                fail(tensors[i].name, fmt::format("the data overlaps the data of tensor '{}'",
                                                  printable(before.name)));
            }
        }
    }

    [[noreturn]] void fail(std::string_view tensor, const std::string &message) const {
        throw_error(ErrorKind::input, "{}: tensor '{}': {}", name_, printable(tensor), message);
    }

    std::span<const std::byte> file_;
    std::string_view name_;
    uint64_t data_start_ = 0;
};

bool is_plain_shard_name(std::string_view name) {
    constexpr std::string_view suffix = ".safetensors";
    return name.size() > suffix.size() && name.size() <= 255 && name.ends_with(suffix) &&
           name.find_first_of(std::string_view("/\\:\0", 4)) == std::string_view::npos &&
           name.front() != '.';
}

} // namespace

int64_t TensorInfo::elements() const {
    int64_t product = 1;
    for (const int64_t dimension : shape) {
        if (dimension == 0) return 0;
        product *= dimension;
    }
    return product;
}

uint64_t TensorInfo::block() const {
    return packed != 0 ? find_ggml_type(packed)->block : keel_dtype_block(dtype);
}

std::string shape_text(std::span<const int64_t> shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, std::string_view name) {
    return HeaderReader(file, name).read();
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path &path)
    : file_(std::make_shared<const MappedFile>(path)) {
    header_ = parse_safetensors(file_->bytes(), file_->path());
}

const TensorInfo *SafetensorsFile::find(std::string_view name) const {
    for (const TensorInfo &tensor : header_.tensors) {
        if (tensor.name == name) return &tensor;
    }
    return nullptr;
}

ShardIndex parse_shard_index(std::string_view text, std::string_view name) {
    // The object "metadata" may have any keys, so this code reads only "weight_map".
    const JsonDocument document(text, std::string(name), {max_shard_index_bytes, 16, 400'000});
    const JsonNode map = document.object().at("weight_map");
    const auto members = map.members();
    ShardIndex index;
    if (members.empty()) map.fail("expected tensors, found none");
    for (const auto &[tensor, file] : members) {
        if (!file.is_text() || !is_plain_shard_name(file.text()))
            file.expected("the plain name of a .safetensors file");
        index.files.push_back(file.text());
    }
    std::sort(index.files.begin(), index.files.end());
    index.files.erase(std::unique(index.files.begin(), index.files.end()), index.files.end());
    for (const auto &[tensor, file] : members) {
        const auto at = std::lower_bound(index.files.begin(), index.files.end(), file.text());
        index.tensors.emplace_back(tensor, static_cast<uint32_t>(at - index.files.begin()));
    }
    return index;
}

} // namespace keel
