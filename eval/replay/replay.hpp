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
    // If set, this number is the bound of all outputs and replaces the table in op_bounds.cpp.
    std::optional<double> bound;
    // True if the parameter `compute` of the backend is "fast". The backend then computes faster
    // but less exactly.
    bool fast = false;
};

// One output of the op: the values of the device, compared with the values of the reference.
struct ReplayOutput {
    std::string name;
    keel_dtype dtype = KEEL_DTYPE_NONE;
    OutputError error;
    double bound = 0;
    std::string place; // place of the element with the largest ratio of error to bound
    float here = 0, reference = 0;
    // The error of the saved `actual` values, compared with the reference's values in this run.
    // nullopt if no `actual` values were saved.
    std::optional<double> saved_error;
};

struct ReplayReport {
    std::string op, label, file, backend, kernel;
    std::string saved_backend, saved_kernel; // backend and kernel when the op was saved
    keel_dtype weight = KEEL_DTYPE_NONE;     // NONE if the op has no weight
    // True if the saved values cannot be represented in the weight's own dtype, so the replay uses
    // f32.
    bool weight_as_f32 = false;
    std::vector<ReplayOutput> outputs;
    bool passed() const;
};

// Runs a saved op with the same inputs on a device and on the core's reference. Throws Error(input)
// if the save is incomplete, or if numbers in the save contradict each other. Throws Error(plugin)
// if the backend does not run the op itself.
ReplayReport replay_op(const SavedOp &saved, const std::shared_ptr<Device> &device,
                       const ReplayOptions &options);

std::string replay_text(const ReplayReport &report);
nlohmann::ordered_json replay_json(const ReplayReport &report, std::string_view version);

} // namespace keel
