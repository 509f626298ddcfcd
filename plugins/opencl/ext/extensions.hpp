// What the backend serves beside its table (keel/ext/draft), one file each.
#pragma once

#include "opencl/stream.hpp"

#include <keel/ext/draft/batched_decode.h>
#include <keel/ext/draft/read_later.h>
#include <keel/ext/draft/replay.h>
#include <keel/ext/draft/stream_counts.h>
#include <keel/ext/draft/timestamps.h>

namespace keel_opencl {

extern const keel_timestamps timestamps;         // timing.cpp
extern const keel_replay replay;                 // replay.cpp
extern const keel_batched_decode batched_decode; // batched_decode.cpp
extern const keel_read_later read_later;         // read_later.cpp
extern const keel_stream_counts_table stream_counts;

// NULL: an unknown name.
const void *KEEL_CALL extension(const char *id) noexcept;

} // namespace keel_opencl
