#pragma once

#include "conformance/side.hpp"

#include <deque>
#include <initializer_list>
#include <map>
#include <vector>

namespace keel::conformance {

// The args of a call as a template for op_plan: larger in everything in which a later call may
// differ from its plan (backend.h): more tokens, slots, blocks and ranges, with the strides that go
// with those, a larger max_length, begin and end further apart; no buffers and no offsets. An op
// that has nothing of the kind is planned as it is called.
class LargerPlan {
  public:
    // `args` is the op's whole args struct, and outlives this.
    LargerPlan(keel_op op, const void *args);
    LargerPlan(const LargerPlan &) = delete;
    LargerPlan &operator=(const LargerPlan &) = delete;

    const keel_op_args *args() const {
        return reinterpret_cast<const keel_op_args *>(args_.data());
    }

  private:
    template <typename Args> using Members = std::initializer_list<const keel_tensor * Args::*>;
    // A copy of the args in which the tensors of `rows` have more of them, and those of `same` are
    // as they are but for their buffers.
    template <typename Args>
    Args &start(const void *args, Members<Args> rows = {}, Members<Args> same = {});
    const keel_tensor *copy(const keel_tensor *t);
    const keel_tensor *grow(const keel_tensor *t, uint32_t dim);
    const keel_tensor *grow_all(const keel_tensor *t);
    const keel_tensor *grow_rows(const keel_tensor *t); // dimension 0 of what has rows
    const keel_kv_view *grow(const keel_kv_view *view);
    const keel_scores *grow(const keel_scores *scores);

    std::vector<uint64_t> args_;
    std::deque<keel_tensor> tensors_;
    std::deque<keel_kv_view> views_;
    std::deque<keel_scores> scores_;
    std::vector<const keel_tensor *> sides_;
    // What is one view in the call is one in the plan.
    std::map<const keel_tensor *, const keel_tensor *> grown_;
    std::map<const keel_kv_view *, const keel_kv_view *> grown_views_;
};

} // namespace keel::conformance
