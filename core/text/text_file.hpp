#pragma once

#include <filesystem>
#include <string>

namespace keel {

// The whole of a file of at most 128 MiB (the largest tokenizer.json in use have 35 MB). required:
// it must be there and not be empty; otherwise a missing one is empty. Throws Error (input).
std::string read_text_file(const std::filesystem::path &path, bool required);

} // namespace keel
