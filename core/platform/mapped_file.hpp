#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>

namespace keel {

// A read-only view of a whole regular file. Owns the mapping; movable, not copyable. Reading is
// safe from any thread.
//
// If another process shortens the file while it is mapped, reading past the new end raises SIGBUS.
// No check can prevent that: model files are expected to be replaced (written beside, then
// renamed), not truncated in place.
class MappedFile {
  public:
    enum class Advice { normal, sequential, random, will_need };
    static constexpr uint64_t to_end = std::numeric_limits<uint64_t>::max();

    // Throws Error(input) with the path and the system's reason; directories, devices and pipes are
    // refused. An empty file gives an empty view.
    explicit MappedFile(const std::filesystem::path &path);
    ~MappedFile();
    MappedFile(MappedFile &&other) noexcept;
    MappedFile &operator=(MappedFile &&other) noexcept;
    MappedFile(const MappedFile &) = delete;
    MappedFile &operator=(const MappedFile &) = delete;

    const std::string &path() const noexcept { return path_; }
    uint64_t size() const noexcept { return size_; }
    // Page-aligned at the front. Valid as long as this object.
    std::span<const std::byte> bytes() const noexcept {
        return {data_, static_cast<size_t>(size_)};
    }

    // A hint for the given range (cut to the file); it changes speed, never content. What the
    // system does not take is ignored.
    void advise(Advice advice, uint64_t offset = 0, uint64_t length = to_end) const noexcept;

    // Returns the pages that lie wholly inside the range to the system. They leave this process's
    // resident set but may stay in the file cache, so that the next start is warm; touching the
    // range again reads it again.
    void drop(uint64_t offset, uint64_t length) const noexcept;

  private:
    void close() noexcept;

    std::string path_;
    const std::byte *data_ = nullptr;
    uint64_t size_ = 0;
};

} // namespace keel
