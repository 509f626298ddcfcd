#pragma once

#include "ops/executor.hpp"

#include <keel/ops_policy.h>

#include <cstdint>
#include <vector>

namespace keel {

// The rules that the model applies to attention logits (for example a soft cap or a window) in the
// layers on which a policy acts. Scores that are computed for a policy follow the same rules.
struct LogitRules {
    float softcap = 0;  // 0: no soft cap
    int64_t window = 0; // tokens; 0: no window

    // `positions`: i32 [m], the positions of the queries. The op reads them only if there is a
    // window.
    void add_to(keel_attention_scores_args &args, const keel_tensor *positions) const;
};

// The positions of consecutive tokens on the device, for LogitRules::add_to.
class QueryPositions {
  public:
    // Returns the positions of tokens `first` to `first + n - 1`, i32 [n]. Valid until the next
    // call.
    const keel_tensor *write(Executor &executor, keel_buffer_kind placement, int64_t first,
                             int64_t n);
    uint64_t bytes() const;

  private:
    Tensor room_, rows_;
    std::vector<int32_t> host_;
};

} // namespace keel
