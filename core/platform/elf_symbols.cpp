#include "platform/elf_symbols.hpp"

#include <cstdint>
#include <cstring>
#include <elf.h>
#include <link.h> // ElfW names the structs of this machine's word size
#include <optional>
#include <span>

namespace keel {
namespace {

using Bytes = std::span<const std::byte>;

// Returns a copy, because data in the file can be unaligned.
template <typename T> std::optional<T> read_at(Bytes file, uint64_t offset) {
    if (offset > file.size() || file.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, file.data() + offset, sizeof value);
    return value;
}

bool is_native_elf(const ElfW(Ehdr) & header) {
    constexpr unsigned char word = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
    return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == word &&
           header.e_phentsize == sizeof(ElfW(Phdr));
}

// Returns one entry of the table of segments. `index` counts from 0.
std::optional<ElfW(Phdr)> segment(Bytes file, const ElfW(Ehdr) & header, uint16_t index) {
    if (header.e_phoff > file.size()) return std::nullopt;
    return read_at<ElfW(Phdr)>(file, header.e_phoff + uint64_t{index} * sizeof(ElfW(Phdr)));
}

// Returns the offset in the file for an address in the loaded library.
std::optional<uint64_t> file_offset(Bytes file, const ElfW(Ehdr) & header, uint64_t address) {
    for (uint16_t i = 0; i < header.e_phnum; ++i) {
        const auto part = segment(file, header, i);
        if (!part) return std::nullopt;
        if (part->p_type != PT_LOAD || address < part->p_vaddr) continue;
        const uint64_t into = address - part->p_vaddr;
        if (into < part->p_filesz && part->p_offset <= file.size()) return part->p_offset + into;
    }
    return std::nullopt;
}

// Returns the table of dynamic strings. Each name in it ends with a 0 byte.
std::string_view dynamic_strings(Bytes file) {
    const auto header = read_at<ElfW(Ehdr)>(file, 0);
    if (!header || !is_native_elf(*header)) return {};
    uint64_t address = 0, size = 0;
    for (uint16_t i = 0; i < header->e_phnum; ++i) {
        const auto part = segment(file, *header, i);
        if (!part) return {};
        if (part->p_type != PT_DYNAMIC || part->p_offset > file.size()) continue;
        for (uint64_t at = 0; at < part->p_filesz; at += sizeof(ElfW(Dyn))) {
            const auto entry = read_at<ElfW(Dyn)>(file, part->p_offset + at);
            if (!entry || entry->d_tag == DT_NULL) break;
            if (entry->d_tag == DT_STRTAB) address = entry->d_un.d_ptr;
            if (entry->d_tag == DT_STRSZ) size = entry->d_un.d_val;
        }
    }
    const auto offset = file_offset(file, *header, address);
    if (!offset || *offset > file.size() || size > file.size() - *offset) return {};
    return {reinterpret_cast<const char *>(file.data() + *offset), static_cast<size_t>(size)};
}

} // namespace

bool names_dynamic_symbol(Bytes file, std::string_view name) noexcept {
    const std::string_view strings = dynamic_strings(file);
    for (size_t at = strings.find(name); at != std::string_view::npos;
         at = strings.find(name, at + 1)) {
        const size_t end = at + name.size();
        const bool is_whole = at > 0 && strings[at - 1] == '\0' && end < strings.size();
        if (is_whole && strings[end] == '\0') return true;
    }
    return false;
}

} // namespace keel
