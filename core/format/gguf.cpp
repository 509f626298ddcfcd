#include "format/gguf.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <unordered_set>

namespace keel {
namespace {

constexpr std::string_view magic = "GGUF";
constexpr uint64_t max_entries = 1 << 16;
constexpr uint64_t max_tensors = 1 << 17;
constexpr uint64_t max_key = 1 << 16;     // bytes, as the format says
constexpr uint64_t max_tensor_name = 256; // bytes; GGML has room for 63
constexpr uint64_t max_alignment = 1 << 20;
constexpr uint32_t max_rank = 4;
// The smallest that they can be: a key's length and one byte of it, type, value; a name's, rank, one size, type, offset.
constexpr uint64_t least_entry = 8 + 1 + 4 + 1;
constexpr uint64_t least_tensor = 8 + 1 + 4 + 4 + 8;

struct TypeRow {
    std::string_view name;
    uint32_t bytes; // 0: no fixed size
};
constexpr std::array<TypeRow, 13> type_rows = {{{"u8", 1},
                                                {"i8", 1},
                                                {"u16", 2},
                                                {"i16", 2},
                                                {"u32", 4},
                                                {"i32", 4},
                                                {"f32", 4},
                                                {"bool", 1},
                                                {"string", 0},
                                                {"array", 0},
                                                {"u64", 8},
                                                {"i64", 8},
                                                {"f64", 8}}};

uint32_t size_of(GgufType type) {
    return type_rows[static_cast<size_t>(type)].bytes;
}

template <typename T>
T load(const std::byte *p) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    return value;
}

// Walks over the file; refuses to leave it. `what` names the thing that is read, for the message.
class Cursor {
  public:
    Cursor(std::span<const std::byte> file, uint64_t at, std::string_view name)
        : file_(file), at_(at), name_(name) {}

    uint64_t at() const { return at_; }
    uint64_t left() const { return file_.size() - at_; }

    const std::byte *take(uint64_t bytes, std::string_view what) {
        if (bytes > left()) {
            throw_error(ErrorKind::input,
                        "{}: {}: {} bytes are needed at byte {}, {} follow; the file is cut short or damaged",
                        name_, what, bytes, at_, left());
        }
        const std::byte *p = file_.data() + at_;
        at_ += bytes;
        return p;
    }
    template <typename T>
    T number(std::string_view what) {
        return load<T>(take(sizeof(T), what));
    }
    std::string_view text(uint64_t most, std::string_view what) {
        const auto length = number<uint64_t>(what);
        if (length > most && length <= left()) {
            throw_error(ErrorKind::input, "{}: {}: expected at most {} bytes of text, found {}", name_, what,
                        most, length);
        }
        return {reinterpret_cast<const char *>(take(length, what)), static_cast<size_t>(length)};
    }

  private:
    std::span<const std::byte> file_;
    uint64_t at_;
    std::string_view name_;
};

class HeaderReader {
  public:
    HeaderReader(std::span<const std::byte> file, std::string_view name) : in_(file, 0, name), name_(name) {}

    uint32_t version() {
        const auto *begin = reinterpret_cast<const char *>(in_.take(4, "magic"));
        if (std::string_view(begin, 4) != magic) {
            throw_error(ErrorKind::input, "{}: expected a GGUF file, which begins with 'GGUF', found '{}'",
                        name_, printable({begin, 4}));
        }
        const auto version = in_.number<uint32_t>("version");
        if (version == 2 || version == 3) return version;
        const uint32_t swapped = __builtin_bswap32(version);
        if (swapped >= 1 && swapped <= 3) {
            throw_error(ErrorKind::input,
                        "{}: a big-endian GGUF file; expected a little-endian one: convert it anew", name_);
        }
        throw_error(ErrorKind::input, "{}: expected GGUF version 2 or 3, found {}{}", name_, version,
                    version == 1 ? "; convert the original model anew" : "");
    }

    // How many of something the header announces; each takes at least `least` of what follows.
    uint64_t count(std::string_view what, uint64_t most, uint64_t least) {
        const auto count = in_.number<uint64_t>(what);
        if (count > most || count > in_.left() / least) {
            throw_error(ErrorKind::input,
                        "{}: number of {}: expected at most {}, found {}; the file is damaged", name_, what,
                        std::min(most, in_.left() / least), count);
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
                throw_error(ErrorKind::input, "{}: {}: arrays of arrays are not supported", name_, what);
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
            throw_error(ErrorKind::input, "{}: {}: expected at most {} dimensions, found {}", name_, what,
                        max_rank, rank);
        }
        for (uint32_t i = 0; i < rank; ++i)
            tensor.shape.push_back(in_.number<int64_t>(what));
        const auto id = in_.number<uint32_t>(what);
        tensor.type = find_ggml_type(id);
        if (tensor.type == nullptr)
            throw_error(ErrorKind::input, "{}: {}: there is no tensor type {}", name_, what, id);
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
        if (number >= type_rows.size())
            throw_error(ErrorKind::input, "{}: {}: there is no value type {}", name_, what, number);
        return static_cast<GgufType>(number);
    }

    // Every byte of the value is looked at as far as its lengths go, so that later reads need no checks of their own.
    void skip(const GgufEntry &entry, const std::string &what) {
        const uint64_t least = entry.element == GgufType::string ? 8 : size_of(entry.element);
        if (entry.count > in_.left() / least) {
            throw_error(ErrorKind::input,
                        "{}: {}: {} values are announced, {} bytes follow; the file is cut "
                        "short or damaged",
                        name_, what, entry.count, in_.left());
        }
        if (entry.element == GgufType::string) {
            for (uint64_t i = 0; i < entry.count; ++i)
                in_.text(UINT64_MAX, what);
            return;
        }
        const std::byte *values = in_.take(entry.count * least, what);
        if (entry.element != GgufType::boolean) return;
        for (uint64_t i = 0; i < entry.count; ++i) {
            if (std::to_integer<uint8_t>(values[i]) > 1) {
                throw_error(ErrorKind::input, "{}: {}: expected 0 or 1 for a bool, found {}", name_, what,
                            std::to_integer<unsigned>(values[i]));
            }
        }
    }

    // shape is still in the file's order, the innermost dimension first.
    void set_size(GgufTensor &tensor) const {
        int64_t elements = 1;
        for (const int64_t size : tensor.shape) {
            if (size < 1) {
                throw_error(ErrorKind::input, "{}: {}: expected sizes of 1 and more, found {}", name_,
                            label(tensor), size);
            }
            if (__builtin_mul_overflow(elements, size, &elements)) {
                throw_error(ErrorKind::input, "{}: {}: it has more elements than 64 bits count", name_,
                            label(tensor));
            }
        }
        const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.front();
        if (row % tensor.type->block != 0) {
            throw_error(ErrorKind::input, "{}: {}: rows of {} elements are no multiple of {}'s blocks of {}",
                        name_, label(tensor), row, tensor.type->name, tensor.type->block);
        }
        if (__builtin_mul_overflow(static_cast<uint64_t>(elements) / tensor.type->block, tensor.type->bytes,
                                   &tensor.bytes)) {
            throw_error(ErrorKind::input, "{}: {}: it has more bytes than 64 bits count", name_,
                        label(tensor));
        }
    }

    Cursor in_;
    std::string_view name_;
};

// Turns offsets in the data into offsets in the file, and checks that all data lie there apart from each other.
void place_tensors(std::vector<GgufTensor> &tensors, uint64_t header_end, uint64_t alignment, uint64_t file,
                   std::string_view name) {
    if (tensors.empty()) return; // a vocabulary alone has no data, and often no padding
    const uint64_t start = (header_end + alignment - 1) / alignment * alignment;
    const uint64_t size = start > file ? 0 : file - start;
    std::vector<const GgufTensor *> order;
    for (GgufTensor &tensor : tensors) {
        const std::string what = printable(tensor.name);
        if (tensor.offset % alignment != 0) {
            throw_error(ErrorKind::input, "{}: tensor '{}': offset: expected a multiple of {}, found {}",
                        name, what, alignment, tensor.offset);
        }
        if (tensor.offset > size || tensor.bytes > size - tensor.offset) {
            throw_error(
                ErrorKind::input,
                "{}: tensor '{}': {} bytes at {} lie behind the file's {} data bytes; the file is cut "
                "short or damaged",
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
            throw_error(ErrorKind::input, "{}: tensor '{}': its data overlaps that of '{}'", name,
                        printable(order[i]->name), printable(before.name));
        }
    }
}

// An integer of any type; nullopt where it is none, or larger than int64.
std::optional<int64_t> as_integer(GgufType type, const std::byte *p) {
    switch (type) {
    case GgufType::u8:
        return load<uint8_t>(p);
    case GgufType::i8:
        return load<int8_t>(p);
    case GgufType::u16:
        return load<uint16_t>(p);
    case GgufType::i16:
        return load<int16_t>(p);
    case GgufType::u32:
        return load<uint32_t>(p);
    case GgufType::i32:
        return load<int32_t>(p);
    case GgufType::i64:
        return load<int64_t>(p);
    case GgufType::u64: {
        const auto value = load<uint64_t>(p);
        if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
        return static_cast<int64_t>(value);
    }
    default:
        return std::nullopt;
    }
}

std::optional<double> as_number(GgufType type, const std::byte *p) {
    if (type == GgufType::f32) return load<float>(p);
    if (type == GgufType::f64) return load<double>(p);
    if (type == GgufType::u64) return static_cast<double>(load<uint64_t>(p));
    if (const auto integer = as_integer(type, p)) return static_cast<double>(*integer);
    return std::nullopt;
}

} // namespace

std::string_view gguf_type_name(GgufType type) {
    return type_rows.at(static_cast<size_t>(type)).name;
}

GgufFile::GgufFile(const std::filesystem::path &path)
    : name_(path.string()), mapping_(std::make_shared<const MappedFile>(path)), bytes_(mapping_->bytes()) {
    parse();
}

GgufFile::GgufFile(std::span<const std::byte> bytes, std::string name)
    : name_(std::move(name)), bytes_(bytes) {
    parse();
}

void GgufFile::parse() {
    HeaderReader in(bytes_, name_);
    version_ = in.version();
    const uint64_t tensors = in.count("tensors", max_tensors, least_tensor);
    const uint64_t entries = in.count("metadata keys", max_entries, least_entry);
    for (uint64_t i = 0; i < entries; ++i) {
        entries_.push_back(in.entry());
        if (!by_key_.emplace(entries_.back().key, entries_.size() - 1).second)
            fail(entries_.back().key, "the key stands there twice");
    }
    std::unordered_set<std::string> names;
    for (uint64_t i = 0; i < tensors; ++i) {
        tensors_.push_back(in.tensor());
        if (!names.insert(tensors_.back().name).second) {
            throw_error(ErrorKind::input, "{}: tensor '{}' stands there twice", name_,
                        printable(tensors_.back().name));
        }
    }
    constexpr std::string_view key = "general.alignment";
    alignment_ = static_cast<uint64_t>(integer(key, 1, max_alignment).value_or(32));
    if ((alignment_ & (alignment_ - 1)) != 0)
        fail(key, fmt::format("expected a power of two, found {}", alignment_));
    place_tensors(tensors_, in.at(), alignment_, bytes_.size(), name_);
}

const GgufEntry *GgufFile::find(std::string_view key) const {
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? nullptr : &entries_[found->second];
}

void GgufFile::fail(std::string_view key, std::string_view message) const {
    throw_error(ErrorKind::input, "{}: metadata key '{}': {}", name_, printable(key), message);
}

std::span<const std::byte> GgufFile::raw(const GgufEntry &entry) const {
    return bytes_.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes));
}

std::string GgufFile::describe(const GgufEntry &entry) const {
    const std::byte *p = bytes_.data() + entry.offset;
    if (entry.is_array()) return fmt::format("an array of {} {}", entry.count, gguf_type_name(entry.element));
    if (entry.type == GgufType::string) {
        Cursor in(bytes_, entry.offset, name_);
        return fmt::format("\"{}\"", printable(in.text(UINT64_MAX, "a string"), 60));
    }
    if (entry.type == GgufType::boolean) return load<uint8_t>(p) != 0 ? "true" : "false";
    if (entry.type == GgufType::u64) return fmt::format("{}", load<uint64_t>(p));
    if (const auto integer = as_integer(entry.type, p)) return fmt::format("{}", *integer);
    return fmt::format("{}", *as_number(entry.type, p));
}

// The entry, which must be an array, or must be none; nullptr if there is no such key.
const GgufEntry *GgufFile::typed(std::string_view key, bool array, std::string_view expected) const {
    const GgufEntry *entry = find(key);
    if (entry != nullptr && entry->is_array() != array)
        fail(key, fmt::format("expected {}, found {}", expected, describe(*entry)));
    return entry;
}

std::optional<std::string_view> GgufFile::text(std::string_view key) const {
    const GgufEntry *entry = typed(key, false, "a string");
    if (entry == nullptr) return std::nullopt;
    if (entry->type != GgufType::string)
        fail(key, fmt::format("expected a string, found {}", describe(*entry)));
    return Cursor(bytes_, entry->offset, name_).text(UINT64_MAX, key);
}

std::optional<int64_t> GgufFile::integer(std::string_view key, int64_t low, int64_t high) const {
    const GgufEntry *entry = typed(key, false, "an integer");
    if (entry == nullptr) return std::nullopt;
    const auto value = as_integer(entry->type, bytes_.data() + entry->offset);
    if (!value || *value < low || *value > high)
        fail(key, fmt::format("expected an integer from {} to {}, found {}", low, high, describe(*entry)));
    return value;
}

std::optional<double> GgufFile::number(std::string_view key, double low, double high) const {
    const GgufEntry *entry = typed(key, false, "a number");
    if (entry == nullptr) return std::nullopt;
    const auto value = as_number(entry->type, bytes_.data() + entry->offset);
    if (!value || !(*value >= low && *value <= high))
        fail(key, fmt::format("expected a number from {} to {}, found {}", low, high, describe(*entry)));
    return value;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
    const GgufEntry *entry = typed(key, false, "true or false");
    if (entry == nullptr) return std::nullopt;
    if (entry->type != GgufType::boolean)
        fail(key, fmt::format("expected true or false, found {}", describe(*entry)));
    return load<uint8_t>(bytes_.data() + entry->offset) != 0;
}

std::optional<uint64_t> GgufFile::array_size(std::string_view key) const {
    const GgufEntry *entry = typed(key, true, "an array");
    return entry == nullptr ? std::nullopt : std::optional(entry->count);
}

std::optional<std::vector<std::string_view>> GgufFile::texts(std::string_view key, uint64_t most) const {
    const GgufEntry *entry = typed(key, true, "an array of strings");
    if (entry == nullptr) return std::nullopt;
    if (entry->element != GgufType::string || entry->count > most) {
        fail(key, fmt::format("expected an array of at most {} strings, found {}", most, describe(*entry)));
    }
    std::vector<std::string_view> texts;
    texts.reserve(static_cast<size_t>(entry->count));
    Cursor in(bytes_, entry->offset, name_);
    for (uint64_t i = 0; i < entry->count; ++i)
        texts.push_back(in.text(UINT64_MAX, key));
    return texts;
}

std::optional<std::vector<int64_t>> GgufFile::integers(std::string_view key, uint64_t most, int64_t low,
                                                       int64_t high) const {
    const GgufEntry *entry = typed(key, true, "an array of integers");
    if (entry == nullptr) return std::nullopt;
    if (entry->count > most)
        fail(key, fmt::format("expected an array of at most {} integers, found {}", most, describe(*entry)));
    std::vector<int64_t> values;
    values.reserve(static_cast<size_t>(entry->count));
    for (uint64_t i = 0; i < entry->count; ++i) {
        const std::byte *p = entry->element == GgufType::string
                                 ? nullptr
                                 : bytes_.data() + entry->offset + i * size_of(entry->element);
        const auto value = as_integer(entry->element, p);
        if (!value || *value < low || *value > high) {
            fail(key, fmt::format("expected integers from {} to {}, found {}{}", low, high,
                                  value ? fmt::format("{} at ", *value) : "another type in ",
                                  value ? fmt::format("[{}]", i) : describe(*entry)));
        }
        values.push_back(*value);
    }
    return values;
}

std::optional<std::vector<float>> GgufFile::numbers(std::string_view key, uint64_t most) const {
    const GgufEntry *entry = typed(key, true, "an array of numbers");
    if (entry == nullptr) return std::nullopt;
    const bool is_number = entry->element != GgufType::string && entry->element != GgufType::boolean;
    if (!is_number || entry->count > most)
        fail(key, fmt::format("expected an array of at most {} numbers, found {}", most, describe(*entry)));
    std::vector<float> values;
    values.reserve(static_cast<size_t>(entry->count));
    for (uint64_t i = 0; i < entry->count; ++i) {
        const std::byte *p = bytes_.data() + entry->offset + i * size_of(entry->element);
        values.push_back(static_cast<float>(*as_number(entry->element, p)));
    }
    return values;
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
