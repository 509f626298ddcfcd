// Program binaries on disk. Nothing in it is needed, nothing in it is trusted, and no fault of it fails a run.
#pragma once

#include "opencl/device.hpp"

#include <string>
#include <vector>

namespace keel_opencl {

class ProgramCache {
  public:
    using Key = uint64_t; // of device, driver, options and source

    // folder: where files go; "" switches the cache off. Made with mode 0700 when first written to; one that belongs to somebody else, or
    // that others may write to, is not used.
    ProgramCache(std::string folder, const DeviceFacts &device);

    bool is_on() const { return !folder_.empty(); }
    const std::string &folder() const { return folder_; }
    Key key(const std::string &options, const char *first, const char *second = "") const;
    // Empty: not there, of something else, or damaged.
    std::vector<unsigned char> load(Key key) const;
    // Written beside and renamed, so that a reader finds all of it or nothing.
    void store(Key key, const std::vector<unsigned char> &data) const;

  private:
    std::string path(Key key) const;
    bool is_safe() const;
    std::string folder_;
    uint64_t device_hash_;
};

// The folder that the word in a config means: "auto" $XDG_CACHE_HOME/keel/opencl or ~/.cache/keel/opencl, "off" none, else itself.
std::string cache_folder(const char *word);

} // namespace keel_opencl
