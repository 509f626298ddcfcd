#pragma once

// Used only in core/graph: the memory of matrices before a device prepares them.

#include "device/weight.hpp"
#include "model/source.hpp"
#include "platform/memory.hpp"

#include <memory>
#include <string>
#include <vector>

namespace keel {

// Buffers for the conversion of matrices. They are reused, because allocating fresh memory costs
// more than writing the converted matrix to it. Not thread-safe.
class ConversionMemory {
  public:
    // Returns a buffer of at least `bytes` bytes that no one else uses. Throws as PageBuffer does.
    std::shared_ptr<PageBuffer> take(uint64_t bytes, const std::string &what);

  private:
    std::vector<std::shared_ptr<PageBuffer>> buffers_;
};

// Returns the parts of a weight in the type `dtype`: in place in their mapping, or converted. All
// converted parts are stored in one buffer. If `reused` is not NULL, the buffer comes from
// `reused`. Throws as ModelSource::convert() does.
std::vector<WeightSource> weight_sources(const std::shared_ptr<const ModelSource> &source,
                                         const std::vector<const TensorInfo *> &tensors,
                                         keel_dtype dtype, const ParallelFor &parallel,
                                         ConversionMemory *reused);

} // namespace keel
