#include "cpu/memory/memory.hpp"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace keel_cpu {
namespace {

constexpr uint64_t huge_page = 2u << 20;

uint8_t *map(uint64_t bytes, int extra_flags) {
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<uint8_t *>(p);
}

// Returns a mapping that begins at a huge page. The function maps more memory than needed and then
// unmaps the rest.
uint8_t *map_huge(uint64_t bytes) {
    uint8_t *raw = map(bytes + huge_page, 0);
    if (raw == nullptr) return nullptr;
    const uint64_t head = (huge_page - reinterpret_cast<uintptr_t>(raw) % huge_page) % huge_page;
    if (head != 0) munmap(raw, head);
    if (huge_page != head) munmap(raw + head + bytes, huge_page - head);
#if defined(MADV_HUGEPAGE)
    // This call is only advice to the system. If it fails, the memory is slower but usable.
    madvise(raw + head, bytes, MADV_HUGEPAGE);
#endif
    return raw + head;
}

} // namespace

uint64_t page_bytes() noexcept { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

Memory memory_alloc(const keel_host *host, uint64_t bytes) noexcept {
    Memory m;
    if (bytes > UINT64_MAX / 2) return m;
    if (bytes >= huge_page) {
        const uint64_t page = page_bytes();
        m.mapped = (bytes + page - 1) / page * page;
        m.data = map_huge(m.mapped);
    } else {
        m.data = static_cast<uint8_t *>(host->alloc(host, bytes == 0 ? 1 : bytes, 64));
    }
    if (m.data == nullptr) return {};
    m.bytes = bytes;
    return m;
}

void memory_free(const keel_host *host, Memory &m) noexcept {
    if (m.mapped != 0)
        munmap(m.data, m.mapped);
    else if (m.data != nullptr)
        host->free(host, m.data);
    m = {};
}

Memory memory_reserve(uint64_t bytes) noexcept {
    Memory m;
    if (bytes > UINT64_MAX / 2) return m;
    const uint64_t page = page_bytes();
    const uint64_t length = (bytes + page - 1) / page * page;
    // The whole mapping is readable and writable from the start. Changing the protection of each
    // block would split the mapping into more pieces than the system allows.
    m.data = map(length, MAP_NORESERVE);
    if (m.data == nullptr) return {};
#if defined(MADV_NOHUGEPAGE)
    // Blocks are committed and released in small pages. A huge page under a block could hold up to
    // 2 MiB that no counter includes.
    madvise(m.data, length, MADV_NOHUGEPAGE);
#endif
    m.bytes = bytes;
    m.mapped = length;
    return m;
}

bool memory_commit(uint8_t *data, uint64_t bytes) noexcept {
#if defined(MADV_POPULATE_WRITE)
    if (madvise(data, bytes, MADV_POPULATE_WRITE) != 0) return errno == EINVAL || errno == ENOSYS;
#else
    (void)data, (void)bytes;
#endif
    // if the kernel cannot allocate pages in advance, it allocates each page at first access
    return true;
}

bool memory_release(uint8_t *data, uint64_t bytes) noexcept {
    return madvise(data, bytes, MADV_DONTNEED) == 0;
}

void system_memory(uint64_t &total, uint64_t &available, const char *meminfo) noexcept {
    total = available = 0;
    const long pages = sysconf(_SC_PHYS_PAGES);
    if (pages > 0) total = static_cast<uint64_t>(pages) * page_bytes();
    const int fd = open(meminfo, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    char text[1024];
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return;
    text[n] = 0;
    const char *line = strstr(text, "MemAvailable:");
    if (line == nullptr) return;
    available = strtoull(line + 13, nullptr, 10) * 1024;
    if (available == 0) available = 1;
}

} // namespace keel_cpu
