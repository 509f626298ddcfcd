#pragma once

#include "device/device.hpp"

#include <keel/ext/draft/weight_layout.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace keel {

// What a backend is told of a weight: rows of parts that are joined one after the other.
struct WeightShape {
    keel_dtype dtype = KEEL_DTYPE_NONE;
    std::vector<int64_t> rows; // of each part
    int64_t cols = 0;
    uint32_t use = 0;   // keel_weight_use_e
    uint32_t max_m = 0; // as keel_weight_desc's
};

// A weight that a file keeps as a backend laid it out.
struct KeptWeight {
    std::shared_ptr<const void> keep_alive; // the mapping
    const void *mapping = nullptr;          // its start, and size
    uint64_t mapping_bytes = 0;
    uint64_t offset = 0, bytes = 0; // of the weight in it
    std::string layout;             // its name
    std::vector<int64_t> rows;      // of each joined part
    std::string place;              // file and tensor: in front of errors
};

// A backend's keel.weight_layout/1 on one device, which outlives this. For the stream's user.
class WeightLayouts {
  public:
    // Empty where the backend has no such extension.
    static std::optional<WeightLayouts> of(Device &device);

    struct Layout {
        std::string name;   // empty: rows are read in place
        uint64_t bytes = 0; // of the weight in it
        uint64_t align = 1; // from the start of a file, so that it is used in place
    };
    // What the device makes of such a weight. Throws Error(plugin) where the backend fails, or says what makes no sense.
    Layout describe(const WeightShape &shape) const;
    // Bytes offset .. offset + n of a weight that weight_prepare gave.
    void keep(const keel_weight *weight, uint64_t offset, void *dst, uint64_t n) const;
    // The weight on the device; NULL where the backend does not read that layout, `why` says then which it reads. Throws Error(input), with
    // kept.place, where the bytes do not fit the shape, Error(resource) without memory.
    keel_weight *take(const WeightShape &shape, const KeptWeight &kept, std::string &why) const;
    // The joined rows in the shape's dtype; false where the backend does not read that layout, or cannot undo it.
    bool rows(const WeightShape &shape, const KeptWeight &kept, std::vector<std::byte> &out) const;

  private:
    WeightLayouts(Device &device, const keel_weight_layout &table) : device_(&device), table_(table) {}

    Device *device_;
    keel_weight_layout table_;
};

} // namespace keel
