#pragma once

namespace keel::cli {

// The commit from which this program was built, for example "0a4673c12345". Ends with "-dirty" if
// the source files had uncommitted changes. Empty if the source was not in a repository.
const char *build_commit() noexcept;

} // namespace keel::cli
