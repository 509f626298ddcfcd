#pragma once

#include <filesystem>
#include <string>

namespace keel {

// The absolute path of the running program. Throws Error(runtime) if the system does not report it.
std::filesystem::path executable_path();

// An absolute path without "." and "..". Symbolic links are kept. The file need not exist.
std::filesystem::path absolute_path(const std::filesystem::path &path);

// The canonical path: absolute, with symbolic links resolved. Throws Error(input) with the system's
// reason if it does not exist.
std::filesystem::path canonical_path(const std::filesystem::path &path);

// Returns the absolute, normal form of a path that is written in a file of `folder`. A relative
// path starts at `folder`.
std::filesystem::path resolve_path(const std::filesystem::path &folder,
                                   const std::filesystem::path &path);

// The whole text of a file. Throws Error(input) if it cannot be read, or has more than `limit`
// bytes; nothing is allocated in this case. `limit` is a plausible maximum for this kind of file.
std::string read_text_file(const std::filesystem::path &path, uint64_t limit);

} // namespace keel
