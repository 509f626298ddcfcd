#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace keel {

// A file that is never visible in an incomplete state. It is written under a temporary name in the
// same folder. publish() renames it to its final name. Without publish() the temporary file is
// removed. Throws Error(input) if something other than a file already exists at the path, or if no
// file can be made in the folder. Throws Error(runtime) if writing fails.
class NewFile {
  public:
    enum class Readers {
        owner,
        as_usual
    }; // who may read the file. owner: only its owner.
       // as_usual: the umask of the process decides
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

// Writes a text to a file. The file is never visible in an incomplete state. The umask decides who
// may read it. Throws as NewFile does.
void write_whole_file(const std::filesystem::path &path, std::string_view text);

} // namespace keel
