#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace keel {

// Returns true if a shared library in ELF format defines or uses the dynamic symbol `name`. `file`
// is the whole file. The function searches only the table of dynamic strings, so other strings of
// the library do not count. Returns false for a damaged file, and for a file that is not ELF of
// this machine's word size. Never reads outside `file`.
bool names_dynamic_symbol(std::span<const std::byte> file, std::string_view name) noexcept;

} // namespace keel
