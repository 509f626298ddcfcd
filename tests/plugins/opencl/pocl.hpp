// What PoCL needs to find its device, set before the first call of OpenCL.
#pragma once

#include "support/temp_folder.hpp"

#include <stdlib.h>

namespace keel::test {

struct PoclCache {
    PoclCache() { setenv("POCL_CACHE_DIR", KEEL_POCL_CACHE, 0); }
};
inline const PoclCache pocl_cache;

} // namespace keel::test
