#pragma once

#include <string>
#include <string_view>

namespace keel::cli {

// Throws Error(usage) if a file exists at `path` that is not a page of the same command. Such a
// page begins with `mark`. So the program never replaces another file of the user. `option` and
// `command` are used in the message.
void require_own_page(const std::string &path, std::string_view option, std::string_view mark,
                      std::string_view command);

} // namespace keel::cli
