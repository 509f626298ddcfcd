// keel.batched_decode/1: ops_rope.cpp, ops_kv.cpp and ops_attention.cpp hold what it is made of.
#include "batched_decode.hpp"

#include "extensions.hpp"
#include "gpu/batched_decode.hpp"

namespace keel_vulkan {

const keel_batched_decode batched_decode = keel_gpu::make_batched_decode();

} // namespace keel_vulkan
