#pragma once

#include "device/device.hpp"
#include "eval/compare/op_error.hpp"
#include "eval/replay/saved_op.hpp"

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace keel {

struct ReplayOptions {
    // One bound for all outputs, instead of the table's (op_bounds.hpp).
    std::optional<double> bound;
    bool fast = false; // the backend trades exactness for speed: its parameter `compute` is "fast"
};

// One output of the op: the device's values compared with the reference's.
struct ReplayOutput {
    std::string name;
    keel_dtype dtype = KEEL_DTYPE_NONE;
    OutputError error;
    double bound = 0;
    std::string place; // of the element with the largest ratio of error and bound
    float here = 0, reference = 0;
    // The error of the saved `actual` values, compared with the reference's result of today.
    // Nothing if they were not saved.
    std::optional<double> saved_error;
};

struct ReplayReport {
    std::string op, label, file, backend, kernel;
    std::string saved_backend, saved_kernel; // backend and kernel of the saved numbers
    keel_dtype weight = KEEL_DTYPE_NONE;     // NONE: the op has no weight
    // The saved values cannot be represented in the weight's own dtype, so f32 was used.
    bool weight_as_f32 = false;
    std::vector<ReplayOutput> outputs;
    bool passed() const;
};

// Repeats a saved op on a device and on the core's reference, with the same inputs. Throws
// Error(input) if the save has too little for the op, or if its numbers do not fit together. Throws
// Error(plugin) if the backend does not run the op itself.
ReplayReport replay_op(const SavedOp &saved, const std::shared_ptr<Device> &device,
                       const ReplayOptions &options);

std::string replay_text(const ReplayReport &report);
nlohmann::ordered_json replay_json(const ReplayReport &report, std::string_view version);

} // namespace keel
