// What the backend serves beside its table (keel/ext/draft), one file each.
#pragma once

#include "cpu/context.hpp"

#include <keel/ext/draft/batched_decode.h>

namespace keel_cpu {

extern const keel_batched_decode batched_decode; // batched_decode.cpp

// NULL: an unknown name.
const void *KEEL_CALL extension(const char *id) noexcept;

} // namespace keel_cpu
