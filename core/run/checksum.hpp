#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace keel {

// Detects damage. It does not protect from hostile files. For that, each value that is read is
// checked.
class Checksum {
  public:
    void add(const void *data, size_t bytes) {
        const auto *p = static_cast<const unsigned char *>(data);
        while (bytes > 0) {
            if (held_ == 0 && bytes >= sizeof word_) {
                uint64_t word;
                std::memcpy(&word, p, sizeof word);
                mix(word);
                p += sizeof word;
                bytes -= sizeof word;
                continue;
            }
            word_ |= uint64_t{*p++} << (8 * held_);
            --bytes;
            if (++held_ == sizeof word_) {
                mix(word_);
                word_ = 0;
                held_ = 0;
            }
        }
    }
    // the checksum of all added bytes; it does not depend on how the bytes were split into calls
    uint64_t value() const {
        Checksum last = *this;
        last.mix(word_);
        last.mix(held_);
        return last.sum_;
    }

  private:
    void mix(uint64_t word) {
        sum_ = (sum_ ^ word) * 0x9E3779B97F4A7C15u;
        sum_ ^= sum_ >> 32;
    }
    uint64_t sum_ = 0x6B65656Cu, word_ = 0;
    size_t held_ = 0;
};

} // namespace keel
