#include "own_page.hpp"

#include "base/display.hpp"
#include "base/error.hpp"

#include <filesystem>
#include <fstream>
#include <system_error>

namespace keel::cli {

void require_own_page(const std::string &path, std::string_view option, std::string_view mark,
                      std::string_view command) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return;
    if (std::filesystem::is_regular_file(path, error)) {
        std::ifstream in(path, std::ios::binary);
        std::string begin(512, '\0');
        in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
        if (begin.find(mark) != std::string::npos) return;
    }
    throw_error(ErrorKind::usage,
                "{} {}: expected a new file or a page of '{}', found another file; it is not "
                "replaced, choose another name",
                option, printable(path, 200), command);
}

} // namespace keel::cli
