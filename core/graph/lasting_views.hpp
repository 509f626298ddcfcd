#pragma once

#include <keel/kv.h>

#include <cstdint>
#include <span>
#include <vector>

namespace keel {

// Views of a cache whose max_length stays the same for many decode steps. So a backend can record a
// decode step with these views once and submit it again.
class LastingViews {
  public:
    // The result is valid until the next call.
    std::span<const keel_kv_view *const> of(std::span<const keel_kv_view *const> kv);

  private:
    std::vector<keel_kv_view> views_;
    std::vector<const keel_kv_view *> list_;
};

} // namespace keel
