#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace keel {

// Whether a shared library in ELF format defines or uses the dynamic symbol `name`. `file` is the
// whole file. Looks only in the library's table of dynamic strings: the name in another string of
// the library does not count. False for a damaged file, and for one that is not ELF of this
// machine's word size. Throws nothing; never reads outside `file`.
bool names_dynamic_symbol(std::span<const std::byte> file, std::string_view name) noexcept;

} // namespace keel
