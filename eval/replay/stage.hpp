#pragma once

#include "eval/compare/op_outputs.hpp"
#include "eval/replay/saved_op.hpp"
#include "ops/executor.hpp"

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace keel {

// The weight matrix of a saved op, in the dtype of the save.
struct SavedWeight {
    keel_dtype dtype = KEEL_DTYPE_NONE;
    bool as_f32 = false; // the values cannot be represented in the weight's own dtype
    int64_t rows = 0, cols = 0;
    std::vector<std::byte> bytes;
};
// Returns the weight of matmul and embed. For all ops except matmul and embed, the dtype of the
// returned weight is NONE. Throws Error(input).
SavedWeight saved_weight(const SavedOp &saved);

// Throws Error(input) because the saved op cannot be replayed. `what` describes the problem.
[[noreturn]] void misfit(const SavedOp &saved, const std::string &what);
// Reads the number `name` of a save as a dtype. Throws Error(input).
keel_dtype saved_dtype(const SavedOp &saved, const char *name);

// A saved op on a device, with new tensors, a new cache and a new weight on this device.
class OpStage {
  public:
    // `saved` and `weight` must outlive this object. Throws Error(input) if the save is incomplete,
    // or if parts of the save contradict each other.
    OpStage(const SavedOp &saved, const SavedWeight &weight, std::shared_ptr<Device> device);
    ~OpStage();

    // Runs the op and returns its outputs, including the cache rows that it wrote.
    std::vector<OpOutput> run();
    const std::string &kernel() const { return kernel_; }

  private:
    const keel_tensor *input(const char *name, bool is_needed = true);
    const keel_tensor *output(const char *name, bool is_needed = true);
    const keel_rope_tables *tables();
    const keel_scores *scores();
    Tensor make(keel_dtype dtype, const std::vector<int64_t> &shape,
                const std::vector<std::byte> &bytes);

    // Defined in stage_cache.cpp.
    enum class Rows { saved, none };
    const keel_kv_view *cache(keel_kv_view &view, Rows rows);
    void fill_cache(const keel_kv_view &view, const std::vector<int32_t> &lengths);

    // Defined in stage_args.cpp.
    void build();
    bool build_plain();
    bool build_on_cache();
    void build_gather();
    void check_indices() const;
    float number(const char *name) const;
    int64_t whole(const char *name) const;
    bool has(uint64_t feature) const { return (saved_.features & feature) != 0; }
    template <typename Args> Args &args();

    const SavedOp &saved_;
    const SavedWeight &saved_weight_;
    std::shared_ptr<Device> device_;
    Executor executor_;
    std::unique_ptr<Weight> weight_;
    std::deque<Tensor> tensors_;
    keel_rope_tables tables_ = {KEEL_HEADER(keel_rope_tables)};
    keel_scores scores_ = {KEEL_HEADER(keel_scores)};
    keel_kv_view view_ = {KEEL_HEADER(keel_kv_view)}, to_ = {KEEL_HEADER(keel_kv_view)};
    std::vector<const keel_tensor *> sides_;
    std::vector<std::byte> storage_;
    std::string kernel_;
};

} // namespace keel
