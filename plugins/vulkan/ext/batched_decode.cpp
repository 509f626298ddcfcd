// keel.batched_decode/1: ops/rope.cpp, ops/kv.cpp and ops/attention.cpp hold what it is made of.
#include "vulkan/ext/batched_decode.hpp"

#include "gpu/batched_decode.hpp"
#include "vulkan/ext/extensions.hpp"

namespace keel_vulkan {

const keel_batched_decode batched_decode = keel_gpu::make_batched_decode();

} // namespace keel_vulkan
