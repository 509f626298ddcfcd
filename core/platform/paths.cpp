#include "platform/paths.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "platform/mapped_file.hpp"

#include <system_error>

namespace keel {
namespace fs = std::filesystem;

fs::path executable_path() {
    std::error_code error;
    fs::path path = fs::read_symlink("/proc/self/exe", error);
    if (error)
        throw_error(ErrorKind::runtime, "/proc/self/exe: cannot find the program's own path: {}",
                    error.message());
    return path;
}

fs::path absolute_path(const fs::path &path) {
    std::error_code error;
    const fs::path full = fs::absolute(path, error);
    if (error)
        throw_error(ErrorKind::input, "{}: cannot make the path absolute: {}", path.string(),
                    error.message());
    fs::path normal = full.lexically_normal();
    // "a/b/" normalizes to a path with an empty last part, which is not equal to "a/b"
    if (!normal.has_filename() && normal.has_relative_path()) normal = normal.parent_path();
    return normal;
}

fs::path canonical_path(const fs::path &path) {
    std::error_code error;
    fs::path full = fs::canonical(path, error);
    if (error) throw_error(ErrorKind::input, "{}: cannot open: {}", path.string(), error.message());
    return full;
}

fs::path resolve_path(const fs::path &folder, const fs::path &path) {
    return absolute_path(folder / path);
}

std::string read_text_file(const fs::path &path, uint64_t limit) {
    const MappedFile file(path);
    if (file.size() > limit) {
        throw_error(ErrorKind::input, "{}: expected at most {}, found {}", path.string(),
                    format_bytes(limit), format_bytes(file.size()));
    }
    const auto bytes = file.bytes();
    return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

} // namespace keel
