// Keeps compiled kernels in files from run to run. A run works without these files, checks each
// one, and never fails because of one.
#pragma once

#include <keel/host.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace keel_gpu {

class DiskCache {
  public:
    // Describes the source from which a file was made.
    using Key = uint64_t;
    static Key key(std::initializer_list<std::string_view> parts) noexcept;

    // The folder for the value `word` of the context parameter `cache`: "auto" is
    // $XDG_CACHE_HOME/keel/BACKEND or ~/.cache/keel/BACKEND, "off" is no folder (""), any other
    // value is the folder itself.
    static std::string folder_of(const char *word, const char *backend);

    // `folder`: "" switches the cache off. The folder is made, with mode 0700, before the first
    // file is written. The device will run the content of the files. So a folder is not used if it
    // belongs to another user, or if other users may write to it.
    explicit DiskCache(std::string folder = {}) : folder_(std::move(folder)) {}
    bool is_on() const { return !folder_.empty(); }
    // Returns nothing if there is no such file, if the file is damaged, or if it was made from
    // another source.
    std::vector<uint8_t> load(Key key) const;
    // Replaces the file in one step: a reader never sees a half-written file.
    void store(Key key, const std::vector<uint8_t> &data) const noexcept;

  private:
    std::string path(Key key) const;
    std::string folder_;
};

// `word` as in folder_of(). If it names a folder that cannot be used, logs a warning with the
// reason. A folder that does not exist yet causes no warning.
void warn_of_unused_folder(const keel_host *host, const char *word) noexcept;

} // namespace keel_gpu
