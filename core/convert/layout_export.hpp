#pragma once

// Internal to core/model: the blocks of export_gguf(), matrices as a backend lays them out.

#include "device/kept_weight.hpp"
#include "model/gguf_layout.hpp"
#include "model/model_tensors.hpp"

#include <functional>
#include <memory>
#include <span>

namespace keel::gguf {

// A block that is to be written.
struct BlockPlan {
    BlockEntry entry;
    std::vector<const TensorInfo *> tensors; // of the source, in the order of their rows
    keel_dtype dtype = KEEL_DTYPE_NONE;
    int64_t cols = 0;
    uint64_t bytes = 0;
    uint32_t use = 0;
};

// Lays matrices out on a device. Device and source outlive this.
class BlockMaker {
  public:
    // Throws Error(input) if the device's backend has no layouts to keep.
    BlockMaker(const ModelSource &source, Device &device, ParallelFor parallel);

    const Device &device() const { return device_; }
    uint64_t align() const { return align_; } // that blocks planned so far want in a file

    // Plans a block of matrices that stand together in the graph and become one dtype. None (no tensors): they lie in a GGUF file as the
    // device reads them.
    // `reordered`: a file holds rows of some of them in another order than the graph wants them.
    BlockPlan plan(std::span<const WeightParts::Part> parts, int64_t cols, keel_dtype dtype, uint32_t use,
                   bool reordered);
    // Calls `out` with the block's bytes, in order.
    void write(const BlockPlan &plan, const std::function<void(std::span<const std::byte>)> &out) const;

  private:
    const ModelSource &source_;
    Device &device_;
    ParallelFor parallel_;
    WeightLayouts layouts_;
    uint64_t align_ = 1;
};

} // namespace keel::gguf
