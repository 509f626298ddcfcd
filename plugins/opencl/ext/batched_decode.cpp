// keel.batched_decode/1: ops/rope.cpp, ops/kv.cpp and ops/attention.cpp hold what it is made of.
#include "opencl/ext/batched_decode.hpp"

#include "gpu/batched_decode.hpp"
#include "opencl/ext/extensions.hpp"

namespace keel_opencl {

const keel_batched_decode batched_decode = keel_gpu::make_batched_decode();

} // namespace keel_opencl
