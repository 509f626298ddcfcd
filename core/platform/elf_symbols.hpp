#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace keel {

// Whether a shared library in ELF format defines or uses the dynamic symbol `name`. `file` is the
// whole file. Only the library's table of dynamic strings is searched; other strings of the library
// do not count. Returns false for a damaged file, and for a file that is not ELF of this machine's
// word size. Never reads outside `file`.
bool names_dynamic_symbol(std::span<const std::byte> file, std::string_view name) noexcept;

} // namespace keel
