#pragma once

#include "eval/compare/tensor_values.hpp"
#include "run/pipeline.hpp"

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace keel {

// The inputs of one call of an op, read before it ran. They are written to a folder: op.json, and a
// dense .bin file for each tensor. docs/reference/compare.md describes the files.
class OpDump {
  public:
    // Reads the inputs that the op may overwrite. complete() reads large tables, weights, and a
    // cache that the op only reads, if they are needed.
    OpDump(Device &device, const PlannedOp &op, const keel_op_args *args);

    // Adds the rest after the op ran: RoPE tables, the cache (of ops that only read it), and the
    // weight up to 1 GiB.
    void complete(Pipeline &pipeline, const PlannedOp &op, const keel_op_args *args);
    // Adds numbers as an f32 tensor with the role "expected" or "actual".
    void add_values(const std::string &role, const TensorValues &values);

    // Writes the files. Creates the folder if needed. `more` is added to op.json. Throws
    // Error(runtime) if a file cannot be written.
    void write(const std::filesystem::path &folder, const nlohmann::ordered_json &more) const;

  private:
    struct Entry {
        std::string name, role;
        keel_dtype dtype = KEEL_DTYPE_NONE;
        std::vector<int64_t> shape;
        std::vector<std::byte> bytes; // empty if not `present`, because it is too large
        bool present = true;
    };
    void add(Device &device, const keel_tensor &tensor, const char *name, const char *role);
    void add_shape(const keel_kv_view &view);
    // `lengths`: the number of slots of each head; empty: those in use.
    void add_view(Device &device, const keel_kv_view &view, std::vector<int32_t> lengths);
    void add_weight(Pipeline &pipeline, const PlannedOp &op);

    std::string label_, op_, kernel_;
    uint64_t features_ = 0;
    std::vector<std::pair<std::string, double>> scalars_;
    std::vector<Entry> entries_;
    std::vector<Entry> outputs_; // only names, dtypes and shapes
};

// The view through which an op reads or writes its cache; for kv_gather the target. NULL if it has
// none.
const keel_kv_view *cache_of(keel_op op, const keel_op_args *args);

} // namespace keel
