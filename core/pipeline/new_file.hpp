#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace keel {

// A file that appears whole or not at all: written beside its place and renamed by publish(); without it, removed. Only the owner may
// read it. Throws Error(input) where there is something other than a file already, or the folder does not take one, Error(runtime)
// where it cannot be written.
class NewFile {
  public:
    explicit NewFile(std::filesystem::path path);
    ~NewFile();
    NewFile(const NewFile &) = delete;
    NewFile &operator=(const NewFile &) = delete;

    void write(std::span<const std::byte> bytes);
    void publish();

  private:
    [[noreturn]] void fail(const char *what) const;

    std::filesystem::path path_;
    std::string beside_;
    int fd_ = -1;
};

} // namespace keel
