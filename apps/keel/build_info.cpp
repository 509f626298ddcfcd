#include "build_info.hpp"

#include "build_commit.inc" // written by cmake/BuildCommit.cmake

namespace keel::cli {

const char *build_commit() noexcept { return KEEL_BUILD_COMMIT; }

} // namespace keel::cli
