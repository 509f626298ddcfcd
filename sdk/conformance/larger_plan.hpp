#pragma once

#include "conformance/side.hpp"

#include <deque>
#include <initializer_list>
#include <map>
#include <vector>

namespace keel::conformance {

// Makes a template for op_plan from the args of a call. A later call may differ from its plan in
// some numbers (backend.h). In the template, all these numbers are larger: more tokens, slots,
// blocks and ranges with larger strides, a larger max_length, and a larger difference of begin and
// end. The template has no buffers and no offsets. If an op has none of these numbers, it is
// planned with the args of the call.
class LargerPlan {
  public:
    // `args` is the whole args struct of the op. It must outlive this object.
    LargerPlan(keel_op op, const void *args);
    LargerPlan(const LargerPlan &) = delete;
    LargerPlan &operator=(const LargerPlan &) = delete;

    const keel_op_args *args() const {
        return reinterpret_cast<const keel_op_args *>(args_.data());
    }

  private:
    template <typename Args> using Members = std::initializer_list<const keel_tensor * Args::*>;
    // Returns a copy of the args. The tensors in `rows` get more rows. The tensors in `same` keep
    // their shapes and lose their buffers.
    template <typename Args>
    Args &start(const void *args, Members<Args> rows = {}, Members<Args> same = {});
    const keel_tensor *copy(const keel_tensor *t);
    const keel_tensor *grow(const keel_tensor *t, uint32_t dim);
    const keel_tensor *grow_all(const keel_tensor *t);
    const keel_tensor *grow_rows(const keel_tensor *t); // enlarges dimension 0 of a tensor of rows
    const keel_kv_view *grow(const keel_kv_view *view);
    const keel_scores *grow(const keel_scores *scores);

    std::vector<uint64_t> args_;
    std::deque<keel_tensor> tensors_;
    std::deque<keel_kv_view> views_;
    std::deque<keel_scores> scores_;
    std::vector<const keel_tensor *> sides_;
    // If two args share a view in the call, they also share a view in the plan.
    std::map<const keel_tensor *, const keel_tensor *> grown_;
    std::map<const keel_kv_view *, const keel_kv_view *> grown_views_;
};

} // namespace keel::conformance
