// Keeps compiled kernels in files, so that later runs need not compile them. Keel also works
// without these files. It checks each file before use, and no error of a file makes a run fail.
#pragma once

#include <keel/host.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace keel_gpu {

class DiskCache {
  public:
    // A number that depends on the source from which a file was made.
    using Key = uint64_t;
    static Key key(std::initializer_list<std::string_view> parts) noexcept;

    // Returns the folder for the value `word` of the context parameter `cache`. "auto" means
    // $XDG_CACHE_HOME/keel/BACKEND or ~/.cache/keel/BACKEND. "off" means no folder, and the result
    // is "". Any other value is the folder itself.
    static std::string folder_of(const char *word, const char *backend);

    // If `folder` is "", nothing is cached. The folder is made with mode 0700 before the first file
    // is written. The device runs the content of the files. So a folder is not used if it belongs
    // to another user, or if other users may write to it.
    explicit DiskCache(std::string folder = {}) : folder_(std::move(folder)) {}
    bool is_on() const { return !folder_.empty(); }
    // Returns the content of a file. Returns an empty vector in three cases: there is no file for
    // this key, the file is damaged, or the file was made from another source.
    std::vector<uint8_t> load(Key key) const;
    // Writes a file, and replaces an old file in a single step. So a reader never sees a
    // half-written file.
    void store(Key key, const std::vector<uint8_t> &data) const noexcept;

  private:
    std::string path(Key key) const;
    std::string folder_;
};

// Logs a warning with the reason if `word` names a folder that cannot be used. `word` has the
// meaning of folder_of(). A folder that does not exist yet causes no warning.
void warn_of_unused_folder(const keel_host *host, const char *word) noexcept;

} // namespace keel_gpu
