#pragma once

#include <keel/ext/draft/attention_dense.h>

namespace keel::reference {

// Returns the table of keel.attention_dense/1, computed in float64: attention over plain tensors,
// forward and backward (attention_dense.cpp).
const keel_dense *attention_dense();

} // namespace keel::reference
