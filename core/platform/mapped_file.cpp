#include "platform/mapped_file.hpp"

#include "base/error.hpp"
#include "platform/memory.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace keel {
namespace {

[[noreturn]] void refuse(const std::string &path, const char *action, int error) {
    throw_error(ErrorKind::input, "{}: cannot {}: {}", path, action,
                std::generic_category().message(error));
}

// Closes the file descriptor when the constructor ends, also after an exception. The mapping does
// not need the descriptor.
class Descriptor {
  public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;
    int get() const { return fd_; }

  private:
    int fd_;
};

int system_advice(MappedFile::Advice advice) {
    switch (advice) {
    case MappedFile::Advice::sequential: return POSIX_MADV_SEQUENTIAL;
    case MappedFile::Advice::random: return POSIX_MADV_RANDOM;
    case MappedFile::Advice::will_need: return POSIX_MADV_WILLNEED;
    case MappedFile::Advice::normal: break;
    }
    return POSIX_MADV_NORMAL;
}

} // namespace

MappedFile::MappedFile(const std::filesystem::path &path) : path_(path.string()) {
    // O_NONBLOCK: opening a pipe must not wait for a writer. The flag has no effect on regular
    // files.
    const Descriptor fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd.get() < 0) refuse(path_, "open", errno);
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) refuse(path_, "read the file's size", errno);
    if (S_ISDIR(info.st_mode))
        throw_error(ErrorKind::input, "{}: expected a file, found a folder", path_);
    if (!S_ISREG(info.st_mode)) {
        throw_error(ErrorKind::input, "{}: expected a regular file, found a device, pipe or socket",
                    path_);
    }
    size_ = static_cast<uint64_t>(info.st_size);
    if (size_ == 0) return;
    if (size_ > std::numeric_limits<size_t>::max() / 2) {
        throw_error(ErrorKind::input, "{}: {} bytes are more than this system can map", path_,
                    size_);
    }
    void *mapping =
        ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (mapping == MAP_FAILED) refuse(path_, "map into memory", errno);
    data_ = static_cast<const std::byte *>(mapping);
}

MappedFile::~MappedFile() { close(); }

MappedFile::MappedFile(MappedFile &&other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
    if (this != &other) {
        close();
        path_ = std::move(other.path_);
        data_ = std::exchange(other.data_, nullptr);
        size_ = std::exchange(other.size_, 0);
    }
    return *this;
}

void MappedFile::close() noexcept {
    if (data_ != nullptr) ::munmap(const_cast<std::byte *>(data_), static_cast<size_t>(size_));
    data_ = nullptr;
    size_ = 0;
}

void MappedFile::advise(Advice advice, uint64_t offset, uint64_t length) const noexcept {
    if (offset >= size_) return;
    const uint64_t end = offset + std::min(length, size_ - offset);
    const uint64_t begin = offset - offset % page_size();
    ::posix_madvise(const_cast<std::byte *>(data_ + begin), static_cast<size_t>(end - begin),
                    system_advice(advice));
}

void MappedFile::drop(uint64_t offset, uint64_t length) const noexcept {
    if (offset >= size_) return;
    const uint64_t page = page_size();
    uint64_t end = offset + std::min(length, size_ - offset);
    // If the range ends at the end of the file, its whole last page can be dropped, because the
    // page has no other data.
    if (end != size_) end -= end % page;
    const uint64_t begin = (offset + page - 1) / page * page;
    if (begin >= end) return;
    // Uses madvise() and not posix_madvise(), because glibc ignores DONTNEED in posix_madvise(). A
    // read-only file mapping cannot lose data.
    ::madvise(const_cast<std::byte *>(data_ + begin), static_cast<size_t>(end - begin),
              MADV_DONTNEED);
}

} // namespace keel
