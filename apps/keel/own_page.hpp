#pragma once

#include <string>
#include <string_view>

namespace keel::cli {

// Throws Error(usage) if the file at `path` is not a page that the same command wrote before (such
// a page begins with `mark`). So a user's own file is never replaced. `option` and `command` are
// used in the message.
void require_own_page(const std::string &path, std::string_view option, std::string_view mark,
                      std::string_view command);

} // namespace keel::cli
