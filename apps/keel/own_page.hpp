#pragma once

#include <string>
#include <string_view>

namespace keel::cli {

// Throws Error(usage) if the file at `path` exists and is not a page of the same command. A page of
// the same command begins with `mark`. So the program never replaces a file that it did not write.
// `option` and `command` are used in the message.
void require_own_page(const std::string &path, std::string_view option, std::string_view mark,
                      std::string_view command);

} // namespace keel::cli
