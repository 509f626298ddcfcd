#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace keel {

// A map uint64 -> uint64 with open addressing in one array, because the lookup of a merge is the
// inner loop of encoding. A key can be any value except 2^64 - 1. Entries cannot be removed.
class FlatMap {
  public:
    void reserve(std::size_t count) {
        std::size_t slots = 16;
        while (slots < count * 2) slots *= 2;
        if (slots > slots_.size()) rehash(slots);
    }

    // Inserts the key, or replaces its value.
    void put(std::uint64_t key, std::uint64_t value) {
        if ((size_ + 1) * 2 > slots_.size()) rehash(slots_.empty() ? 16 : slots_.size() * 2);
        Slot &slot = slots_[probe(key)];
        if (slot.key == empty) ++size_;
        slot = {key, value};
    }

    // Returns the value, or NULL if the map does not have the key. The pointer is valid until the
    // next put().
    const std::uint64_t *find(std::uint64_t key) const noexcept {
        if (slots_.empty()) return nullptr;
        const Slot &slot = slots_[probe(key)];
        return slot.key == empty ? nullptr : &slot.value;
    }

    std::size_t size() const noexcept { return size_; }

  private:
    static constexpr std::uint64_t empty = ~std::uint64_t{0};
    struct Slot {
        std::uint64_t key = empty;
        std::uint64_t value = 0;
    };

    static std::uint64_t mix(std::uint64_t x) noexcept { // the last step of splitmix64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
        return x ^ (x >> 31);
    }

    // Returns the slot that has the key, or the empty slot for the key.
    std::size_t probe(std::uint64_t key) const noexcept {
        const std::size_t mask = slots_.size() - 1;
        std::size_t at = mix(key) & mask;
        while (slots_[at].key != key && slots_[at].key != empty) at = (at + 1) & mask;
        return at;
    }

    void rehash(std::size_t slots) {
        std::vector<Slot> old(slots);
        old.swap(slots_);
        for (const Slot &slot : old)
            if (slot.key != empty) slots_[probe(slot.key)] = slot;
    }

    std::vector<Slot> slots_;
    std::size_t size_ = 0;
};

} // namespace keel
