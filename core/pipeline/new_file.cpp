#include "pipeline/new_file.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <unistd.h>

namespace keel {

NewFile::NewFile(std::filesystem::path path) : path_(std::move(path)) {
    std::error_code error;
    const auto status = std::filesystem::status(path_, error);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
        throw_error(ErrorKind::input, "{}: not a file; nothing is written over it",
                    printable(path_.string(), 400));
    beside_ = path_.string() + ".XXXXXX";
    fd_ = ::mkstemp(beside_.data());
    if (fd_ < 0) {
        const int reason = errno;
        throw_error(ErrorKind::input, "{}: cannot be written: {}", printable(path_.string(), 400),
                    std::strerror(reason));
    }
}

NewFile::~NewFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(beside_.c_str());
}

void NewFile::fail(const char *what) const {
    const int reason = errno;
    throw_error(ErrorKind::runtime, "{}: cannot be {}: {}", printable(path_.string(), 400), what,
                std::strerror(reason));
}

void NewFile::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("written");
        bytes = bytes.subspan(static_cast<size_t>(n));
    }
}

void NewFile::publish() {
    if (::fsync(fd_) != 0) fail("written");
    if (::rename(beside_.c_str(), path_.c_str()) != 0) fail("put in its place");
    ::close(fd_);
    fd_ = -1;
}

} // namespace keel
