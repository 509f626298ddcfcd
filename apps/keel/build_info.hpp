#pragma once

namespace keel::cli {

// The commit from which this program was built, "0a4673c12345", or "0a4673c12345-dirty" if files
// were changed. Empty if the source was not in a repository.
const char *build_commit() noexcept;

} // namespace keel::cli
