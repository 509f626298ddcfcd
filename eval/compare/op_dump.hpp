#pragma once

#include "eval/compare/tensor_values.hpp"
#include "run/pipeline.hpp"

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace keel {

// The inputs of one call of an op, taken before it ran, to be written to a folder: op.json and a
// .bin file per tensor, dense. The form is described in docs/reference/compare.md.
class OpDump {
  public:
    // Reads inputs that the op may overwrite. Large tables, weights and a cache that is only read
    // are read by complete(), if it comes to that.
    OpDump(Device &device, const PlannedOp &op, const keel_op_args *args);

    // Adds the rest: RoPE tables, the cache (of ops that only read it), the weight up to 1 GiB.
    // After the op ran.
    void complete(Pipeline &pipeline, const PlannedOp &op, const keel_op_args *args);
    // Adds numbers as an f32 tensor: "expected", "actual".
    void add_values(const std::string &role, const TensorValues &values);

    // Writes; the folder is made. `more` goes into op.json as it is. Throws Error(runtime) where it
    // cannot be written.
    void write(const std::filesystem::path &folder, const nlohmann::ordered_json &more) const;

  private:
    struct Entry {
        std::string name, role;
        keel_dtype dtype = KEEL_DTYPE_NONE;
        std::vector<int64_t> shape;
        std::vector<std::byte> bytes; // empty and not `present`: too large
        bool present = true;
    };
    void add(Device &device, const keel_tensor &tensor, const char *name, const char *role);
    void add_shape(const keel_kv_view &view);
    // `lengths`: how many slots of each head; empty: as many as are in use.
    void add_view(Device &device, const keel_kv_view &view, std::vector<int32_t> lengths);
    void add_weight(Pipeline &pipeline, const PlannedOp &op);

    std::string label_, op_, kernel_;
    uint64_t features_ = 0;
    std::vector<std::pair<std::string, double>> scalars_;
    std::vector<Entry> entries_;
    std::vector<Entry> outputs_; // names, dtypes and shapes alone
};

// The view that an op reads or writes its cache through, NULL if it has none; of kv_gather the
// target.
const keel_kv_view *cache_of(keel_op op, const keel_op_args *args);

} // namespace keel
