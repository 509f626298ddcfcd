#pragma once

#include <filesystem>
#include <string>

namespace keel {

// The running program's file, absolute. Throws Error(runtime) where the system does not tell.
std::filesystem::path executable_path();

// Absolute, without "." and "..", symbolic links left as they are; the file need not exist.
std::filesystem::path absolute_path(const std::filesystem::path &path);

// The one true path: absolute, links followed. Throws Error(input) with the system's reason if it
// does not exist.
std::filesystem::path canonical_path(const std::filesystem::path &path);

// `path` as written in a file that lies in `folder`: relative paths are relative to that folder.
// Absolute, normal.
std::filesystem::path resolve_path(const std::filesystem::path &folder,
                                   const std::filesystem::path &path);

// The whole of a text file. Throws Error(input) if it cannot be read or holds more than `limit`
// bytes: nothing is allocated then. `limit` says what is sane for that kind of file.
std::string read_text_file(const std::filesystem::path &path, uint64_t limit);

} // namespace keel
