#include "text/text_file.hpp"

#include "base/error.hpp"

#include <fstream>
#include <system_error>

namespace keel {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t max_file_bytes = 128ULL << 20;

} // namespace

std::string read_text_file(const fs::path &path, bool required) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) {
        if (!required) return {};
        throw_error(ErrorKind::input,
                    "{}: no such file; a model folder must have its tokenizer in this file",
                    path.string());
    }
    if (!fs::is_regular_file(status))
        throw_error(ErrorKind::input, "{}: not a regular file", path.string());
    const std::uintmax_t size = fs::file_size(path, error);
    if (error) throw_error(ErrorKind::input, "{}: {}", path.string(), error.message());
    if (size > max_file_bytes)
        throw_error(ErrorKind::input, "{}: the file has {} bytes, expected at most {}",
                    path.string(), size, max_file_bytes);
    std::ifstream in(path, std::ios::binary);
    std::string text(static_cast<std::size_t>(size), '\0');
    in.read(text.data(), static_cast<std::streamsize>(size));
    if (!in || static_cast<std::uintmax_t>(in.gcount()) != size)
        throw_error(ErrorKind::input, "{}: cannot be read", path.string());
    if (required && text.empty())
        throw_error(ErrorKind::input, "{}: the file is empty", path.string());
    return text;
}

} // namespace keel
