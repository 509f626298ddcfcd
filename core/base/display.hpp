#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace keel {

// Text from outside, made fit for one line of a message: control characters and bytes that are
// not UTF-8 become \xNN, and what is longer than `limit` bytes ends in "...". So a hostile name
// cannot move the cursor.
std::string printable(std::string_view text, size_t limit = 120);

// Text from outside as a message quotes it: 'x', printable, at most 60 bytes of it.
std::string quote_text(std::string_view text);

constexpr double bytes_per_mib = 1048576;

// "512 B", "4.0 KiB", "11.0 MiB", "3.7 GiB": one decimal from KiB up.
std::string format_bytes(uint64_t bytes);

} // namespace keel
