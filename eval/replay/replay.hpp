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
    std::optional<double> bound; // for all outputs, instead of the table's (op_bounds.hpp)
    bool fast = false; // the backend trades exactness for speed: its parameter compute is fast
};

// One output of the op, from the device and from the reference.
struct ReplayOutput {
    std::string name;
    keel_dtype dtype = KEEL_DTYPE_NONE;
    OutputError error;
    double bound = 0;
    std::string place; // of the worst element
    float here = 0, reference = 0;
    // What was saved as `actual`, against the reference's result of now; nothing where it was not
    // saved.
    std::optional<double> saved_error;
};

struct ReplayReport {
    std::string op, label, file, backend, kernel;
    std::string saved_backend, saved_kernel; // where the saved numbers come from
    keel_dtype weight = KEEL_DTYPE_NONE;     // NONE: no weight
    bool weight_as_f32 =
        false; // the saved values are no values of the weight's own dtype: f32 was used
    std::vector<ReplayOutput> outputs;
    bool passed() const;
};

// Repeats a saved op on a device and on the core's reference, with the same inputs. Throws
// Error(input) for an op that a save does not hold enough of, or whose numbers do not fit together;
// Error(plugin) if the backend does not run it itself.
ReplayReport replay_op(const SavedOp &saved, const std::shared_ptr<Device> &device,
                       const ReplayOptions &options);

std::string replay_text(const ReplayReport &report);
nlohmann::ordered_json replay_json(const ReplayReport &report, std::string_view version);

} // namespace keel
