#pragma once

#include "format/gguf.hpp"

#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace keel::test {

// The bytes of a GGUF file, written piece by piece, so that each of them can be wrong.
struct GgufBytes {
    std::string magic = "GGUF";
    uint32_t version = 3;
    std::optional<uint64_t> tensor_count,
        key_count; // number of keys in the header; if not set, the real number
    std::string keys, tensors, data;
    uint64_t keys_made = 0, tensors_made = 0;
    uint64_t alignment = 32;
    bool padded = true; // true: there is padding between header and data

    template <typename T> static std::string number(T value) {
        std::string out(sizeof value, '\0');
        std::memcpy(out.data(), &value, sizeof value);
        return out;
    }
    static std::string text(std::string_view value) {
        return number(static_cast<uint64_t>(value.size())) + std::string(value);
    }

    GgufBytes &raw_key(std::string_view key, uint32_t type, const std::string &value) {
        keys += text(key) + number(type) + value;
        ++keys_made;
        return *this;
    }
    GgufBytes &key(std::string_view name, uint32_t value) {
        return raw_key(name, 4, number(value));
    }
    GgufBytes &key(std::string_view name, float value) { return raw_key(name, 6, number(value)); }
    GgufBytes &key(std::string_view name, const char *value) {
        return raw_key(name, 8, text(value));
    }
    GgufBytes &key(std::string_view name, const std::vector<std::string> &values) {
        std::string array = number(uint32_t{8}) + number(static_cast<uint64_t>(values.size()));
        for (const std::string &value : values) array += text(value);
        return raw_key(name, 9, array);
    }

    // `sizes` has the order of the file: the innermost dimension first.
    GgufBytes &raw_tensor(std::string_view name, const std::vector<uint64_t> &sizes, uint32_t type,
                          uint64_t offset) {
        tensors += text(name) + number(static_cast<uint32_t>(sizes.size()));
        for (const uint64_t size : sizes) tensors += number(size);
        tensors += number(type) + number(offset);
        ++tensors_made;
        return *this;
    }
    // Adds a tensor whose data follows the existing data.
    GgufBytes &tensor(std::string_view name, const std::vector<uint64_t> &sizes, uint32_t type,
                      const std::string &values) {
        data.resize((data.size() + alignment - 1) / alignment * alignment);
        raw_tensor(name, sizes, type, data.size());
        data += values;
        return *this;
    }

    std::string bytes() const {
        std::string out = magic + number(version) + number(tensor_count.value_or(tensors_made)) +
                          number(key_count.value_or(keys_made)) + keys + tensors;
        if (padded) out.resize((out.size() + alignment - 1) / alignment * alignment);
        return out + data;
    }
};

inline GgufFile parse_gguf(const std::string &bytes) {
    return GgufFile(std::as_bytes(std::span(bytes)), "m.gguf");
}

} // namespace keel::test
