#pragma once

#include <string>
#include <string_view>

namespace keel::cli {

// Throws Error(usage) if there is a file at `path` other than a page that the same command wrote
// before, which begins with `mark`: what is somebody's own is not replaced. `option` and `command`
// are for the message.
void require_own_page(const std::string &path, std::string_view option, std::string_view mark,
                      std::string_view command);

} // namespace keel::cli
