#pragma once

#include "device/tensor.hpp"

#include <keel/backend.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace keel {

// One part of a weight, in a mapped file or in memory.
struct WeightSource {
    std::shared_ptr<const void> keep_alive; // keeps the mapping alive
    const void *mapping = nullptr;          // start and size of the mapping
    uint64_t mapping_bytes = 0;
    uint64_t offset = 0; // offset of row 0 in the mapping
    keel_dtype dtype = KEEL_DTYPE_NONE;
    int64_t rows = 0, cols = 0;
};

// A matrix of the model, [rows, cols], joined from one or more sources and prepared on one or more
// devices. If a backend stores weights in its own layout, the weight has a handle on this device.
// For other backends the core keeps the joined rows in a buffer.
class Weight {
  public:
    // Returns the sources, all with the same dtype and cols. They are views into a mapping, or the
    // result of a conversion. The function is called once for each device on which the weight is
    // prepared. The sources are freed as soon as no device reads them in place.
    using Sources = std::function<std::vector<WeightSource>()>;

    Weight(std::string name, keel_dtype dtype, int64_t rows, int64_t cols, Sources sources,
           keel_join join, uint32_t use, uint32_t max_m, uint32_t experts = 0);
    ~Weight();
    Weight(const Weight &) = delete;
    Weight &operator=(const Weight &) = delete;

    const std::string &name() const { return name_; }
    int64_t rows() const { return rows_; }
    int64_t cols() const { return cols_; }
    keel_dtype dtype() const { return dtype_; }
    uint32_t use() const { return use_; }
    // The number of experts whose rows follow each other; 0: the weight has no experts. See
    // keel_weight_desc.experts.
    uint32_t experts() const { return experts_; }

    // Prepares the weight on a device. Does nothing if it is already prepared there.
    void prepare(Device &device);
    bool is_ready(const Device &device) const { return on_.count(&device) != 0; }
    // The two members of an op's args that describe the weight on a device: `weight` and `w`.
    // Exactly one of the two is not NULL. The weight must be prepared on the device.
    keel_weight *handle(const Device &device) const;
    const keel_tensor *tensor(const Device &device) const;
    // The shape [rows, cols] without memory, for checks.
    const keel_tensor *shape() const { return shape_.c(); }
    // The bytes of the weight that a matmul with one row reads. For a weight with experts: the
    // bytes of all experts. If the weight is not prepared on the device, the bytes of its plain
    // rows.
    uint64_t bytes(const Device &device) const;
    std::string layout(const Device &device) const;
    // Returns the joined rows, in dtype(), as the core keeps them for a backend without its own
    // layout. Makes the sources again if they were freed.
    std::vector<std::byte> joined() const;
    // Returns true while a device reads the sources in place.
    bool sources_needed() const;

  private:
    struct OnDevice {
        std::shared_ptr<Device> device;
        keel_weight *handle = nullptr;
        Tensor tensor;
        keel_weight_info info{};
    };
    void check(const std::vector<WeightSource> &sources) const;
    void read_info(Device &, OnDevice &);
    bool prepare_native(Device &, OnDevice &);
    void prepare_rows(Device &, OnDevice &);

    std::string name_;
    keel_dtype dtype_;
    int64_t rows_, cols_;
    Sources make_sources_;
    std::vector<WeightSource> sources_; // empty while no device needs them
    keel_join join_;
    uint32_t use_;
    uint32_t max_m_;
    uint32_t experts_;
    Tensor shape_;
    std::map<const Device *, OnDevice> on_;
};

} // namespace keel
