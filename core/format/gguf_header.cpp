// Reads the header of a GGUF file. The whole header is checked when the file is opened.
#include "format/gguf_cursor.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <unordered_set>

namespace keel {
namespace {

constexpr std::string_view magic = "GGUF";
constexpr uint64_t max_entries = 1 << 16;
constexpr uint64_t max_tensors = 1 << 17;
constexpr uint64_t max_key = 1 << 16;     // bytes; a limit of the format
constexpr uint64_t max_tensor_name = 256; // bytes; GGML allows 63
constexpr uint64_t max_alignment = 1 << 20;
constexpr uint32_t max_rank = 4;
// The smallest sizes in bytes. An entry has at least the length of the key, one byte of the key,
// the type and the value. A tensor has at least the length of the name, one byte of the name, the
// rank, one dimension, the type and the offset.
constexpr uint64_t least_entry = 8 + 1 + 4 + 1;
constexpr uint64_t least_tensor = 8 + 1 + 4 + 4 + 8;

class HeaderReader {
  public:
    HeaderReader(std::span<const std::byte> file, std::string_view name)
        : in_(file, 0, name), name_(name) {}

    uint32_t version() {
        const auto *begin = reinterpret_cast<const char *>(in_.take(4, "magic"));
        if (std::string_view(begin, 4) != magic) {
            throw_error(ErrorKind::input,
                        "{}: expected a GGUF file, which begins with 'GGUF', found '{}'", name_,
                        printable({begin, 4}));
        }
        const auto version = in_.number<uint32_t>("version");
        if (version == 2 || version == 3) return version;
        const uint32_t swapped = __builtin_bswap32(version);
        if (swapped >= 1 && swapped <= 3) {
            throw_error(ErrorKind::input,
                        "{}: expected a little-endian GGUF file, found a big-endian one; convert "
                        "the model again",
                        name_);
        }
        throw_error(ErrorKind::input, "{}: expected GGUF version 2 or 3, found {}{}", name_,
                    version, version == 1 ? "; convert the original model again" : "");
    }

    // Reads a count from the header. Throws if the count is above `most`. Also throws if the rest
    // of the file is too small for this number of items of at least `least` bytes.
    uint64_t count(std::string_view what, uint64_t most, uint64_t least) {
        const auto count = in_.number<uint64_t>(what);
        if (count > most || count > in_.left() / least) {
            throw_error(
                ErrorKind::input,
                "{}: number of {}: expected at most {}, found {}; the file is cut short or damaged",
                name_, what, std::min(most, in_.left() / least), count);
        }
        return count;
    }

    GgufEntry entry() {
        GgufEntry entry;
        entry.key = in_.text(max_key, "a metadata key");
        if (entry.key.empty()) throw_error(ErrorKind::input, "{}: a metadata key is empty", name_);
        const std::string what = fmt::format("metadata key '{}'", printable(entry.key));
        entry.type = type(what);
        entry.element = entry.type;
        if (entry.is_array()) {
            entry.element = type(what);
            if (entry.element == GgufType::array)
                throw_error(ErrorKind::input, "{}: {}: arrays of arrays are not supported", name_,
                            what);
            entry.count = in_.number<uint64_t>(what);
        }
        entry.offset = in_.at();
        skip(entry, what);
        entry.bytes = in_.at() - entry.offset;
        return entry;
    }

    GgufTensor tensor() {
        GgufTensor tensor;
        tensor.name = in_.text(max_tensor_name, "a tensor's name");
        if (tensor.name.empty()) throw_error(ErrorKind::input, "{}: a tensor has no name", name_);
        const std::string what = label(tensor);
        const auto rank = in_.number<uint32_t>(what);
        if (rank > max_rank) {
            throw_error(ErrorKind::input, "{}: {}: expected at most {} dimensions, found {}", name_,
                        what, max_rank, rank);
        }
        for (uint32_t i = 0; i < rank; ++i) tensor.shape.push_back(in_.number<int64_t>(what));
        const auto id = in_.number<uint32_t>(what);
        tensor.type = find_ggml_type(id);
        if (tensor.type == nullptr)
            throw_error(ErrorKind::input, "{}: {}: unknown tensor type {}", name_, what, id);
        tensor.offset = in_.number<uint64_t>(what);
        set_size(tensor);
        std::reverse(tensor.shape.begin(), tensor.shape.end());
        return tensor;
    }

    uint64_t at() const { return in_.at(); }

  private:
    static std::string label(const GgufTensor &tensor) {
        return fmt::format("tensor '{}'", printable(tensor.name));
    }

    GgufType type(const std::string &what) {
        const auto number = in_.number<uint32_t>(what);
        if (!is_gguf_type(number))
            throw_error(ErrorKind::input, "{}: {}: unknown value type {}", name_, what, number);
        return static_cast<GgufType>(number);
    }

    // Skips a value and checks all lengths in it, so that later reads need no checks.
    void skip(const GgufEntry &entry, const std::string &what) {
        const uint64_t least =
            entry.element == GgufType::string ? 8 : gguf_type_bytes(entry.element);
        if (entry.count > in_.left() / least) {
            throw_error(ErrorKind::input,
                        "{}: {}: expected {} values, but only {} bytes follow; the file is cut "
                        "short or damaged",
                        name_, what, entry.count, in_.left());
        }
        if (entry.element == GgufType::string) {
            for (uint64_t i = 0; i < entry.count; ++i) in_.text(UINT64_MAX, what);
            return;
        }
        const std::byte *values = in_.take(entry.count * least, what);
        if (entry.element != GgufType::boolean) return;
        for (uint64_t i = 0; i < entry.count; ++i) {
            if (std::to_integer<uint8_t>(values[i]) > 1) {
                throw_error(ErrorKind::input, "{}: {}: expected 0 or 1 for a bool, found {}", name_,
                            what, std::to_integer<unsigned>(values[i]));
            }
        }
    }

    // In `shape`, the dimensions still have the file's order: the innermost dimension comes first.
    void set_size(GgufTensor &tensor) const {
        int64_t elements = 1;
        for (const int64_t size : tensor.shape) {
            if (size < 1) {
                throw_error(ErrorKind::input, "{}: {}: expected sizes of 1 or more, found {}",
                            name_, label(tensor), size);
            }
            if (__builtin_mul_overflow(elements, size, &elements)) {
                throw_error(ErrorKind::input,
                            "{}: {}: the number of elements does not fit into 64 bits", name_,
                            label(tensor));
            }
        }
        const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.front();
        if (row % tensor.type->block != 0) {
            throw_error(
                ErrorKind::input,
                "{}: {}: rows of {} elements do not consist of whole {} blocks of {} elements",
                name_, label(tensor), row, tensor.type->name, tensor.type->block);
        }
        if (__builtin_mul_overflow(static_cast<uint64_t>(elements) / tensor.type->block,
                                   tensor.type->bytes, &tensor.bytes)) {
            throw_error(ErrorKind::input, "{}: {}: the number of bytes does not fit into 64 bits",
                        name_, label(tensor));
        }
    }

    GgufCursor in_;
    std::string_view name_;
};

// Converts offsets in the data to offsets in the file. Checks that the data of each tensor is
// inside the file and that no two tensors overlap.
void place_tensors(std::vector<GgufTensor> &tensors, uint64_t header_end, uint64_t alignment,
                   uint64_t file, std::string_view name) {
    if (tensors.empty())
        return; // a file with only a vocabulary has no tensor data, and often no
                // padding at its end
    const uint64_t start = (header_end + alignment - 1) / alignment * alignment;
    const uint64_t size = start > file ? 0 : file - start;
    std::vector<const GgufTensor *> order;
    for (GgufTensor &tensor : tensors) {
        const std::string what = printable(tensor.name);
        if (tensor.offset % alignment != 0) {
            throw_error(ErrorKind::input,
                        "{}: tensor '{}': offset: expected a multiple of {}, found {}", name, what,
                        alignment, tensor.offset);
        }
        if (tensor.offset > size || tensor.bytes > size - tensor.offset) {
            throw_error(ErrorKind::input,
                        "{}: tensor '{}': {} bytes at offset {} do not fit into the file's {} data "
                        "bytes; the file is cut short or damaged",
                        name, what, tensor.bytes, tensor.offset, size);
        }
        tensor.offset += start;
        order.push_back(&tensor);
    }
    std::sort(order.begin(), order.end(),
              [](const GgufTensor *a, const GgufTensor *b) { return a->offset < b->offset; });
    for (size_t i = 1; i < order.size(); ++i) {
        const GgufTensor &before = *order[i - 1];
        if (order[i]->offset < before.offset + before.bytes) {
            throw_error(ErrorKind::input,
                        "{}: tensor '{}': the data overlaps the data of tensor '{}'", name,
                        printable(order[i]->name), printable(before.name));
        }
    }
}

} // namespace

void GgufFile::parse() {
    HeaderReader in(bytes_, name_);
    version_ = in.version();
    const uint64_t tensors = in.count("tensors", max_tensors, least_tensor);
    const uint64_t entries = in.count("metadata keys", max_entries, least_entry);
    for (uint64_t i = 0; i < entries; ++i) {
        entries_.push_back(in.entry());
        if (!by_key_.emplace(entries_.back().key, entries_.size() - 1).second)
            fail(entries_.back().key, "the key occurs twice in the file");
    }
    std::unordered_set<std::string> names;
    for (uint64_t i = 0; i < tensors; ++i) {
        tensors_.push_back(in.tensor());
        if (!names.insert(tensors_.back().name).second) {
            throw_error(ErrorKind::input, "{}: tensor '{}' occurs twice in the file", name_,
                        printable(tensors_.back().name));
        }
    }
    constexpr std::string_view key = "general.alignment";
    alignment_ = static_cast<uint64_t>(integer(key, 1, max_alignment).value_or(32));
    if ((alignment_ & (alignment_ - 1)) != 0)
        fail(key, fmt::format("expected a power of two, found {}", alignment_));
    place_tensors(tensors_, in.at(), alignment_, bytes_.size(), name_);
}

bool is_gguf_file(const std::filesystem::path &path) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) return false;
    std::ifstream in(path, std::ios::binary);
    std::array<char, 4> begin{};
    in.read(begin.data(), begin.size());
    return in && std::string_view(begin.data(), begin.size()) == magic;
}

} // namespace keel
