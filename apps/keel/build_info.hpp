#pragma once

namespace keel::cli {

// The commit that this program was built from, "0a4673c12345" or "0a4673c12345-dirty" where files
// were changed; empty if the source was no repository.
const char *build_commit() noexcept;

} // namespace keel::cli
