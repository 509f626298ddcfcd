#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>

namespace keel {

// A read-only view of a whole regular file. It owns the mapping. Movable, not copyable. Any thread
// may read.
//
// If another process shortens the file while it is mapped, reading past the new end raises SIGBUS.
// No check can prevent this. So to change a model file, write a new file and rename it to the old
// name. Do not truncate the file in place.
class MappedFile {
  public:
    enum class Advice { normal, sequential, random, will_need };
    static constexpr uint64_t to_end = std::numeric_limits<uint64_t>::max();

    // Throws Error(input) with the path and the system's reason. Refuses directories, devices and
    // pipes. An empty file gives an empty view.
    explicit MappedFile(const std::filesystem::path &path);
    ~MappedFile();
    MappedFile(MappedFile &&other) noexcept;
    MappedFile &operator=(MappedFile &&other) noexcept;
    MappedFile(const MappedFile &) = delete;
    MappedFile &operator=(const MappedFile &) = delete;

    const std::string &path() const noexcept { return path_; }
    uint64_t size() const noexcept { return size_; }
    // The first byte is page-aligned. Valid while this object lives.
    std::span<const std::byte> bytes() const noexcept {
        return {data_, static_cast<size_t>(size_)};
    }

    // Gives the system a hint for a range of the file. The hint affects only the speed. Errors of
    // the system are ignored.
    void advise(Advice advice, uint64_t offset = 0, uint64_t length = to_end) const noexcept;

    // Gives pages back to the system: all pages that are wholly inside the range. The pages leave
    // this process's resident set. They can stay in the file cache, so the next start is fast.
    // Using the range again reads it again.
    void drop(uint64_t offset, uint64_t length) const noexcept;

  private:
    void close() noexcept;

    std::string path_;
    const std::byte *data_ = nullptr;
    uint64_t size_ = 0;
};

} // namespace keel
