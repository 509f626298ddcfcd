#include "platform/elf_symbols.hpp"

#include "platform/mapped_file.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <unistd.h>
#include <utility>
#include <vector>

using keel::names_dynamic_symbol;

namespace {

// Returns the content of this test program: an ELF file that uses getpagesize() of the C library.
std::vector<std::byte> own_file() {
    CHECK(::getpagesize() > 0);
    const keel::MappedFile file(std::filesystem::read_symlink("/proc/self/exe"));
    return {file.bytes().begin(), file.bytes().end()};
}

} // namespace

TEST_CASE("a dynamic symbol is found by its whole name") {
    const std::vector<std::byte> file = own_file();
    CHECK(names_dynamic_symbol(file, "getpagesize"));
    CHECK_FALSE(names_dynamic_symbol(file, "getpagesiz"));
    CHECK_FALSE(names_dynamic_symbol(file, "etpagesize"));
}

TEST_CASE("a text in a program is not found as a dynamic symbol") {
    // This text is in the program's file, with a NUL on both sides.
    static const char text[] = "\0keel_text_that_is_no_symbol";
    CHECK_FALSE(names_dynamic_symbol(own_file(), text + 1));
}

TEST_CASE(
    "for files that are not ELF, truncated or damaged no symbol is found, and reads stay inside") {
    std::vector<std::byte> file = own_file();
    CHECK_FALSE(names_dynamic_symbol({}, "getpagesize"));
    CHECK_FALSE(names_dynamic_symbol(std::vector<std::byte>(4096), "getpagesize"));
    for (size_t size = 0; size < 2048; size += 7) {
        const std::vector<std::byte> cut(file.begin(),
                                         file.begin() + static_cast<std::ptrdiff_t>(size));
        CHECK_FALSE(names_dynamic_symbol(cut, "getpagesize"));
    }
    for (size_t at = 0; at < 2048; ++at) { // the header and the segment table
        const std::byte before = std::exchange(file[at], std::byte{0xff});
        static_cast<void>(names_dynamic_symbol(file, "getpagesize"));
        file[at] = before;
    }
}
