// Reads the values in the metadata of a GGUF file. gguf_header.cpp reads the header.
#include "format/gguf_cursor.hpp"

#include <array>

namespace keel {
namespace {

struct TypeRow {
    std::string_view name;
    uint32_t bytes; // 0: the size is not fixed
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

// Reads an integer of any integer type. Returns nullopt if the value is not an integer, or is
// larger than INT64_MAX.
std::optional<int64_t> as_integer(GgufType type, const std::byte *p) {
    switch (type) {
    case GgufType::u8: return load_value<uint8_t>(p);
    case GgufType::i8: return load_value<int8_t>(p);
    case GgufType::u16: return load_value<uint16_t>(p);
    case GgufType::i16: return load_value<int16_t>(p);
    case GgufType::u32: return load_value<uint32_t>(p);
    case GgufType::i32: return load_value<int32_t>(p);
    case GgufType::i64: return load_value<int64_t>(p);
    case GgufType::u64: {
        const auto value = load_value<uint64_t>(p);
        if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
        return static_cast<int64_t>(value);
    }
    default: return std::nullopt;
    }
}

std::optional<double> as_number(GgufType type, const std::byte *p) {
    if (type == GgufType::f32) return load_value<float>(p);
    if (type == GgufType::f64) return load_value<double>(p);
    if (type == GgufType::u64) return static_cast<double>(load_value<uint64_t>(p));
    if (const auto integer = as_integer(type, p)) return static_cast<double>(*integer);
    return std::nullopt;
}

} // namespace

std::string_view gguf_type_name(GgufType type) {
    return type_rows.at(static_cast<size_t>(type)).name;
}

uint32_t gguf_type_bytes(GgufType type) { return type_rows[static_cast<size_t>(type)].bytes; }

bool is_gguf_type(uint32_t number) { return number < type_rows.size(); }

GgufFile::GgufFile(const std::filesystem::path &path)
    : name_(path.string()), mapping_(std::make_shared<const MappedFile>(path)),
      bytes_(mapping_->bytes()) {
    parse();
}

GgufFile::GgufFile(std::span<const std::byte> bytes, std::string name)
    : name_(std::move(name)), bytes_(bytes) {
    parse();
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
    if (entry.is_array())
        return fmt::format("an array of {} {}", entry.count, gguf_type_name(entry.element));
    if (entry.type == GgufType::string) {
        GgufCursor in(bytes_, entry.offset, name_);
        return fmt::format("\"{}\"", printable(in.text(UINT64_MAX, "a string"), 60));
    }
    if (entry.type == GgufType::boolean) return load_value<uint8_t>(p) != 0 ? "true" : "false";
    if (entry.type == GgufType::u64) return fmt::format("{}", load_value<uint64_t>(p));
    if (const auto integer = as_integer(entry.type, p)) return fmt::format("{}", *integer);
    return fmt::format("{}", *as_number(entry.type, p));
}

// Returns the entry of a key, or NULL if there is no such key. If `array` is true, throws if the
// entry is not an array. If `array` is false, throws if the entry is an array.
const GgufEntry *GgufFile::typed(std::string_view key, bool array,
                                 std::string_view expected) const {
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
    return GgufCursor(bytes_, entry->offset, name_).text(UINT64_MAX, key);
}

std::optional<int64_t> GgufFile::integer(std::string_view key, int64_t low, int64_t high) const {
    const GgufEntry *entry = typed(key, false, "an integer");
    if (entry == nullptr) return std::nullopt;
    const auto value = as_integer(entry->type, bytes_.data() + entry->offset);
    if (!value || *value < low || *value > high)
        fail(key, fmt::format("expected an integer from {} to {}, found {}", low, high,
                              describe(*entry)));
    return value;
}

std::optional<double> GgufFile::number(std::string_view key, double low, double high) const {
    const GgufEntry *entry = typed(key, false, "a number");
    if (entry == nullptr) return std::nullopt;
    const auto value = as_number(entry->type, bytes_.data() + entry->offset);
    if (!value || !(*value >= low && *value <= high))
        fail(key,
             fmt::format("expected a number from {} to {}, found {}", low, high, describe(*entry)));
    return value;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
    const GgufEntry *entry = typed(key, false, "true or false");
    if (entry == nullptr) return std::nullopt;
    if (entry->type != GgufType::boolean)
        fail(key, fmt::format("expected true or false, found {}", describe(*entry)));
    return load_value<uint8_t>(bytes_.data() + entry->offset) != 0;
}

std::optional<uint64_t> GgufFile::array_size(std::string_view key) const {
    const GgufEntry *entry = typed(key, true, "an array");
    return entry == nullptr ? std::nullopt : std::optional(entry->count);
}

std::optional<std::vector<std::string_view>> GgufFile::texts(std::string_view key,
                                                             uint64_t most) const {
    const GgufEntry *entry = typed(key, true, "an array of strings");
    if (entry == nullptr) return std::nullopt;
    if (entry->element != GgufType::string || entry->count > most) {
        fail(key, fmt::format("expected an array of at most {} strings, found {}", most,
                              describe(*entry)));
    }
    std::vector<std::string_view> texts;
    texts.reserve(static_cast<size_t>(entry->count));
    GgufCursor in(bytes_, entry->offset, name_);
    for (uint64_t i = 0; i < entry->count; ++i) texts.push_back(in.text(UINT64_MAX, key));
    return texts;
}

std::optional<std::vector<int64_t>> GgufFile::integers(std::string_view key, uint64_t most,
                                                       int64_t low, int64_t high) const {
    const GgufEntry *entry = typed(key, true, "an array of integers");
    if (entry == nullptr) return std::nullopt;
    if (entry->count > most)
        fail(key, fmt::format("expected an array of at most {} integers, found {}", most,
                              describe(*entry)));
    std::vector<int64_t> values;
    values.reserve(static_cast<size_t>(entry->count));
    for (uint64_t i = 0; i < entry->count; ++i) {
        const std::byte *p =
            entry->element == GgufType::string
                ? nullptr
                : bytes_.data() + entry->offset + i * gguf_type_bytes(entry->element);
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

std::optional<std::vector<bool>> GgufFile::booleans(std::string_view key, uint64_t most) const {
    const GgufEntry *entry = typed(key, true, "an array of booleans");
    if (entry == nullptr) return std::nullopt;
    if (entry->element != GgufType::boolean || entry->count > most)
        fail(key, fmt::format("expected an array of at most {} booleans, found {}", most,
                              describe(*entry)));
    std::vector<bool> values;
    values.reserve(static_cast<size_t>(entry->count));
    for (uint64_t i = 0; i < entry->count; ++i)
        values.push_back(load_value<uint8_t>(bytes_.data() + entry->offset + i) != 0);
    return values;
}

std::optional<std::vector<float>> GgufFile::numbers(std::string_view key, uint64_t most) const {
    const GgufEntry *entry = typed(key, true, "an array of numbers");
    if (entry == nullptr) return std::nullopt;
    const bool is_number =
        entry->element != GgufType::string && entry->element != GgufType::boolean;
    if (!is_number || entry->count > most)
        fail(key, fmt::format("expected an array of at most {} numbers, found {}", most,
                              describe(*entry)));
    std::vector<float> values;
    values.reserve(static_cast<size_t>(entry->count));
    for (uint64_t i = 0; i < entry->count; ++i) {
        const std::byte *p = bytes_.data() + entry->offset + i * gguf_type_bytes(entry->element);
        values.push_back(static_cast<float>(*as_number(entry->element, p)));
    }
    return values;
}

} // namespace keel
