#include "platform/new_file.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

namespace keel {

NewFile::NewFile(std::filesystem::path path, Readers readers) : path_(std::move(path)) {
    std::error_code error;
    const auto status = std::filesystem::status(path_, error);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
        throw_error(
            ErrorKind::input,
            "{}: exists and is not a regular file, so it is not replaced; name another file",
            printable(path_.string(), 400));
    const mode_t mode = readers == Readers::owner ? 0600 : 0666;
    for (int attempt = 0; attempt < 100;
         ++attempt) { // a program that was killed can have left a file with this name
        beside_ = fmt::format("{}.part-{}-{}", path_.string(), ::getpid(), attempt);
        fd_ = ::open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd_ >= 0 || errno != EEXIST) break;
    }
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
    if (::rename(beside_.c_str(), path_.c_str()) != 0) fail("renamed to its final name");
    ::close(fd_);
    fd_ = -1;
}

void write_whole_file(const std::filesystem::path &path, std::string_view text) {
    NewFile file(path, NewFile::Readers::as_usual);
    file.write(std::as_bytes(std::span(text)));
    file.publish();
}

} // namespace keel
