#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace keel {

// Makes untrusted text safe for one line of a message. Control characters and bytes that are not
// UTF-8 become \xNN, so a hostile name cannot move the cursor. A text longer than `limit` bytes is
// cut and ends in "...".
std::string printable(std::string_view text, size_t limit = 120);

// Quotes untrusted text for a message: 'x'. The result is printable and has at most 60 bytes of the
// text.
std::string quote_text(std::string_view text);

constexpr double bytes_per_mib = 1048576;

// Formats a number of bytes: "512 B", "4.0 KiB", "11.0 MiB", "3.7 GiB". KiB and larger units get
// one decimal.
std::string format_bytes(uint64_t bytes);

} // namespace keel
