// The folder in which compiled kernels are kept from run to run. What lies there is run, so it has to be the user's alone.
#pragma once

#include <keel/host.h>

namespace keel_gpu {

// A folder that is this user's and that no other may write to.
bool is_private_folder(const char *path) noexcept;

// `word` is a context's parameter `cache`: where it names a folder that will not be used, because it is not private or not a folder, the
// user is told why. What is not there yet is made later.
void warn_of_unused_folder(const keel_host *host, const char *word) noexcept;

} // namespace keel_gpu
