#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace keel {

// A file that appears whole or not at all: written beside its place and renamed by publish();
// without it, removed. Throws Error(input) where there is something other than a file already, or
// the folder does not take one, Error(runtime) where it cannot be written.
class NewFile {
  public:
    enum class Readers { owner, as_usual }; // as_usual: what the process' umask leaves
    explicit NewFile(std::filesystem::path path, Readers readers = Readers::owner);
    ~NewFile();
    NewFile(const NewFile &) = delete;
    NewFile &operator=(const NewFile &) = delete;

    void write(std::span<const std::byte> bytes);
    void publish();
    const std::filesystem::path &path() const { return path_; }

  private:
    [[noreturn]] void fail(const char *what) const;

    std::filesystem::path path_;
    std::string beside_;
    int fd_ = -1;
};

// A text as a file, whole or not at all, for everybody to read. Throws as NewFile does.
void write_whole_file(const std::filesystem::path &path, std::string_view text);

} // namespace keel
