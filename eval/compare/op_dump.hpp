#pragma once

#include "eval/compare/tensor_values.hpp"
#include "run/pipeline.hpp"

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace keel {

// The inputs of one call of an op, read before the op runs. write() writes them to a folder:
// op.json, and a dense .bin file for each tensor. docs/reference/compare.md describes the files.
class OpDump {
  public:
    // Reads the inputs that the op can overwrite. If the remaining inputs are needed, complete()
    // reads them later. The remaining inputs are large tables, weights, and a cache that the op
    // does not change.
    OpDump(Device &device, const PlannedOp &op, const keel_op_args *args);

    // Adds the remaining inputs after the op ran: RoPE tables, the cache if the op does not change
    // the cache, and the weight if the weight has at most 1 GiB.
    void complete(Pipeline &pipeline, const PlannedOp &op, const keel_op_args *args);
    // Adds values as an f32 tensor with the role "expected" or "actual".
    void add_values(const std::string &role, const TensorValues &values);

    // Writes the files. Creates the folder if it does not exist. The members of `more` are added to
    // op.json. Throws Error(runtime) if a file cannot be written.
    void write(const std::filesystem::path &folder, const nlohmann::ordered_json &more) const;

  private:
    struct Entry {
        std::string name, role;
        keel_dtype dtype = KEEL_DTYPE_NONE;
        std::vector<int64_t> shape;
        // Empty if `present` is false, because the tensor is too large.
        std::vector<std::byte> bytes;
        bool present = true;
    };
    void add(Device &device, const keel_tensor &tensor, const char *name, const char *role);
    void add_shape(const keel_kv_view &view);
    // Adds the slots of a cache. `lengths` is the number of slots of each head. If `lengths` is
    // empty, the function adds all slots in use.
    void add_view(Device &device, const keel_kv_view &view, std::vector<int32_t> lengths);
    void add_weight(Pipeline &pipeline, const PlannedOp &op);

    std::string label_, op_, kernel_;
    uint64_t features_ = 0;
    std::vector<std::pair<std::string, double>> scalars_;
    std::vector<Entry> entries_;
    std::vector<Entry> outputs_; // an entry here has only the name, dtype and shape of an output
};

// Returns the view through which an op reads or writes its cache. For kv_gather, returns the view
// of the target cache. Returns NULL if the op uses no cache.
const keel_kv_view *cache_of(keel_op op, const keel_op_args *args);

} // namespace keel
