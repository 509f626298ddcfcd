#pragma once

#include <filesystem>
#include <string>

namespace keel {

// Reads the whole text of a file of at most 128 MiB (the largest known tokenizer.json has 35 MB).
// If `required`, the file must exist and must not be empty. Otherwise a missing file gives an empty
// text. Throws Error(input).
std::string read_text_file(const std::filesystem::path &path, bool required);

} // namespace keel
