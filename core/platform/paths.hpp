#pragma once

#include <filesystem>
#include <string>

namespace keel {

// Returns the absolute path of the running program. Throws Error(runtime) if the system does not
// report it.
std::filesystem::path executable_path();

// Returns an absolute path without "." and "..". Symbolic links are kept. The file need not exist.
std::filesystem::path absolute_path(const std::filesystem::path &path);

// Returns the canonical path: absolute, with symbolic links resolved. Throws Error(input) with the
// system's reason if the file does not exist.
std::filesystem::path canonical_path(const std::filesystem::path &path);

// Returns the absolute, normal form of a path that is written in a file. `folder` is the folder of
// this file. A relative path starts at `folder`.
std::filesystem::path resolve_path(const std::filesystem::path &folder,
                                   const std::filesystem::path &path);

// Returns the whole text of a file. Throws Error(input) if the file cannot be read or has more than
// `limit` bytes. No memory is allocated in this case. `limit` is a plausible maximum for this kind
// of file.
std::string read_text_file(const std::filesystem::path &path, uint64_t limit);

} // namespace keel
