#pragma once

#include "device/executor.hpp"
#include "eval/op_outputs.hpp"
#include "eval/saved_op.hpp"

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace keel {

// The matrix of a saved op in the dtype it had.
struct SavedWeight {
    keel_dtype dtype = KEEL_DTYPE_NONE;
    bool as_f32 = false; // its saved values are none of that dtype's: kept as f32
    int64_t rows = 0, cols = 0;
    std::vector<std::byte> bytes;
};
// Of matmul and embed; dtype NONE for the others. Throws Error(input).
SavedWeight saved_weight(const SavedOp &saved);

// A saved op placed on a device: tensors, cache and weight are made anew there.
class OpStage {
  public:
    // Both arguments outlive this. Throws Error(input) for what a save does not hold or does not fit together.
    OpStage(const SavedOp &saved, const SavedWeight &weight, std::shared_ptr<Device> device);
    ~OpStage();

    // Runs the op; its outputs, cache rows included.
    std::vector<OpOutput> run();
    const std::string &kernel() const { return kernel_; }

  private:
    const keel_tensor *input(const char *name, bool is_needed = true);
    const keel_tensor *output(const char *name, bool is_needed = true);
    const keel_rope_tables *tables();
    const keel_kv_view *cache();
    Tensor make(keel_dtype dtype, const std::vector<int64_t> &shape, const std::vector<std::byte> &bytes);
    void fill_cache(const keel_kv_view &view, const std::vector<int32_t> &lengths);
    void build();
    template <typename Args>
    Args &args();

    const SavedOp &saved_;
    const SavedWeight &saved_weight_;
    std::shared_ptr<Device> device_;
    Executor executor_;
    std::unique_ptr<Weight> weight_;
    std::deque<Tensor> tensors_;
    keel_rope_tables tables_ = {KEEL_HEADER(keel_rope_tables)};
    keel_kv_view view_ = {KEEL_HEADER(keel_kv_view)};
    std::vector<std::byte> storage_;
    std::string kernel_;
};

} // namespace keel
