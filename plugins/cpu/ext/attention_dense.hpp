// The table of keel.attention_dense/1. attention/dense.hpp has the computation.
#pragma once

#include <keel/ext/draft/attention_dense.h>

namespace keel_cpu {

extern const keel_dense attention_dense;

} // namespace keel_cpu
