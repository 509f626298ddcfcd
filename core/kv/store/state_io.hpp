#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace keel {

// Writes the saved state of a sequence. Numbers are written as they are in memory, which is
// little-endian on all machines of Keel.
class StateWriter {
  public:
    StateWriter() = default;
    virtual ~StateWriter() = default;
    StateWriter(const StateWriter &) = delete;
    StateWriter &operator=(const StateWriter &) = delete;

    // Throws Error if the bytes cannot be written.
    virtual void write(const void *data, size_t bytes) = 0;

    template <typename T> void put(const T &value) {
        static_assert(std::is_arithmetic_v<T>);
        write(&value, sizeof value);
    }
    template <typename T> void put_all(std::span<const T> values) {
        static_assert(std::is_arithmetic_v<T>);
        write(values.data(), values.size_bytes());
    }
    void put_text(std::string_view text) {
        put(static_cast<uint64_t>(text.size()));
        write(text.data(), text.size());
    }
};

// Reads the output of a StateWriter. The bytes are not trusted: every length is checked against the
// remaining bytes before memory is allocated. Errors are Error(input) "NAME: ...".
class StateReader {
  public:
    // `bytes` must outlive this object.
    StateReader(std::span<const std::byte> bytes, std::string name)
        : left_(bytes), name_(std::move(name)) {}

    const std::string &name() const { return name_; }
    uint64_t left() const { return left_.size(); }

    template <typename... Args>
    [[noreturn]] void fail(fmt::format_string<Args...> format, Args &&...args) const {
        throw Error(ErrorKind::input,
                    name_ + ": " + fmt::format(format, std::forward<Args>(args)...));
    }

    // Returns the next `bytes` bytes. If there are fewer, throws an error that says that `what` is
    // cut off. The result is valid as long as the reader's bytes are. The bytes may have any
    // alignment.
    std::span<const std::byte> take(uint64_t bytes, std::string_view what) {
        if (bytes > left_.size())
            fail("the session ends within {}: expected {} more bytes, found {}", what, bytes,
                 left_.size());
        const auto taken = left_.first(static_cast<size_t>(bytes));
        left_ = left_.subspan(static_cast<size_t>(bytes));
        return taken;
    }
    template <typename T> T get(std::string_view what) {
        static_assert(std::is_arithmetic_v<T>);
        T value;
        std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
        return value;
    }
    // Reads a count from `least` to `most`.
    int64_t get_count(std::string_view what, int64_t least, int64_t most) {
        const auto value = get<int64_t>(what);
        if (value < least || value > most)
            fail("{}: expected {} to {}, found {}", what, least, most, value);
        return value;
    }
    std::string get_text(std::string_view what) {
        const auto bytes = get<uint64_t>(what);
        const auto text = take(bytes, what);
        return {reinterpret_cast<const char *>(text.data()), text.size()};
    }
    template <typename T, typename Container>
    void get_all(Container &out, uint64_t count, std::string_view what) {
        static_assert(std::is_arithmetic_v<T>);
        if (count > left_.size() / sizeof(T))
            fail("the session ends within {}: expected {} more values, found {} bytes", what, count,
                 left_.size());
        const auto bytes = take(count * sizeof(T), what);
        out.resize(static_cast<size_t>(count));
        if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
    }

  private:
    std::span<const std::byte> left_;
    std::string name_;
};

} // namespace keel
